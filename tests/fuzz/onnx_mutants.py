"""Damaged ONNX files: models of which bytes, or fields of their messages, are others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

# Numbers at which readers err: around the limits of types, sizes that no memory has, and codes of no type.
_NUMBERS = (0, 1, -1, 2, 3, 7, 8, 16, 100, 127, 128, 255, 1 << 15, 1 << 20, 1 << 31, (1 << 31) - 1, -(1 << 31))
_LONG_NUMBERS = (*_NUMBERS, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "x", "\0", "../x", "/etc/passwd", "ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training", "é" * 300)


def mutant(models: Sequence[bytes], random: Random) -> bytes:
    """A file made of one of `models`, which are ONNX files, and of parts of others."""
    data = random.choice(models)
    if random.random() < 0.25:
        return _with_other_bytes(data, models, random)
    proto = onnx.ModelProto.FromString(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        _change(proto, models, random)
    try:
        data = proto.SerializeToString()
    except Exception:
        # Strings that are not UTF-8.
        return _with_other_bytes(data, models, random)
    return data if random.random() < 0.95 else _with_other_bytes(data, models, random)


# ---- bytes ----------------------------------------------------------------------------------------------------------


def _with_other_bytes(data: bytes, models: Sequence[bytes], random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at = random.randrange(len(changed) + 1)
        end = min(len(changed), at + random.choice((1, 1, 2, 8, 64)))
        match random.randrange(5):
            case 0:
                changed[at:end] = random.randbytes(end - at)
            case 1:
                del changed[at:end]
            case 2:
                changed[at:at] = random.randbytes(end - at)
            case 3:
                other = random.choice(models)
                start = random.randrange(len(other))
                changed[at:end] = other[start : start + random.choice((1, 8, 64, 512))]
            case 4 if random.random() < 0.2:
                del changed[at:]
    return bytes(changed)


# ---- fields ---------------------------------------------------------------------------------------------------------


def _messages(message: Message) -> list[Message]:
    """The message and those inside of it."""
    found, left = [], [message]
    while left:
        current = left.pop()
        found.append(current)
        for field, value in current.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                left += list(value) if _is_repeated(field) else [value]
    return found


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _change(proto: onnx.ModelProto, models: Sequence[bytes], random: Random) -> None:
    """Changes one field of one message."""
    message = random.choice(_messages(proto))
    # Fields that are there say more than those that are not.
    fields = [field for field, _ in message.ListFields()]
    if not fields or random.random() < 0.2:
        fields = list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = random.choice(fields)
    change = _change_list if _is_repeated(field) else _change_one
    change(message, field, proto, models, random)


def _change_one(
    message: Message, field: FieldDescriptor, proto: onnx.ModelProto, models: Sequence[bytes], random: Random
) -> None:
    if random.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, field.name).CopyFrom(_other_message(field, proto, models, random))
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), proto, random))


def _change_list(
    message: Message, field: FieldDescriptor, proto: onnx.ModelProto, models: Sequence[bytes], random: Random
) -> None:
    values: Any = getattr(message, field.name)
    action = random.randrange(5)
    if action == 0 and len(values):
        del values[random.randrange(len(values))]
    elif action == 1 and len(values):
        # Again, at the end.
        item = values[random.randrange(len(values))]
        for _ in range(random.choice((1, 1, 2, 50))):
            values.append(item)
    elif action == 2 and len(values) > 1:
        items = list(values)
        random.shuffle(items)
        del values[:]
        values.extend(items)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        other = _other_message(field, proto, models, random)
        if len(values) and random.random() < 0.5:
            values[random.randrange(len(values))].CopyFrom(other)
        else:
            values.append(other)
    elif len(values) and random.random() < 0.7:
        at = random.randrange(len(values))
        values[at] = _scalar(field, values[at], proto, random)
    else:
        values.append(_scalar(field, None, proto, random))


def _other_message(field: FieldDescriptor, proto: onnx.ModelProto, models: Sequence[bytes], random: Random) -> Message:
    """A message of the type of a field, from the model, from another, or empty."""
    kind = field.message_type
    source = proto if random.random() < 0.5 else onnx.ModelProto.FromString(random.choice(models))
    found = [message for message in _messages(source) if message.DESCRIPTOR is kind]
    made = _empty(kind)
    if found and random.random() < 0.95:
        made.CopyFrom(random.choice(found))
    return made


def _empty(kind: Any) -> Message:
    """A message of a type, which may be declared inside of another."""
    place: Any = onnx
    for part in kind.full_name.split(".")[1:]:
        place = getattr(place, part)
    made: Message = place()
    return made


def _scalar(field: FieldDescriptor, old: Any, proto: onnx.ModelProto, random: Random) -> Any:
    by_type: dict[int, Callable[[], Any]] = {
        FieldDescriptor.TYPE_INT64: lambda: _near(old, _LONG_NUMBERS, random),
        FieldDescriptor.TYPE_UINT64: lambda: abs(_near(old, _LONG_NUMBERS, random)),
        FieldDescriptor.TYPE_INT32: lambda: max(min(_near(old, _NUMBERS, random), (1 << 31) - 1), -(1 << 31)),
        FieldDescriptor.TYPE_FLOAT: lambda: random.choice(_FLOATS),
        FieldDescriptor.TYPE_DOUBLE: lambda: random.choice(_FLOATS),
        FieldDescriptor.TYPE_STRING: lambda: _text(proto, random),
        FieldDescriptor.TYPE_BYTES: lambda: _bytes(old or b"", random),
        FieldDescriptor.TYPE_ENUM: lambda: random.choice([v.number for v in field.enum_type.values]),
    }
    return by_type[field.type]()


def _near(old: Any, numbers: Sequence[int], random: Random) -> int:
    if isinstance(old, int) and abs(old) < 1 << 30 and random.random() < 0.5:
        return old + random.choice((-2, -1, 1, 2))
    return random.choice(numbers)


def _text(proto: onnx.ModelProto, random: Random) -> str:
    """A name of the model, or of any operator, or another text."""
    if random.random() < 0.3:
        return random.choice(_TEXTS)
    if random.random() < 0.3:
        return str(random.choice(_OPERATORS))
    names: list[str] = [name for node in proto.graph.node for name in (*node.input, *node.output, node.op_type)]
    names += [value.name for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer)]
    return random.choice(names) if names else "y"


_OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})


def _bytes(old: bytes, random: Random) -> bytes:
    match random.randrange(4):
        case 0:
            return old[: random.randrange(len(old) + 1)]
        case 1:
            return old + random.randbytes(random.choice((1, 4, 100)))
        case 2:
            return random.randbytes(len(old))
    return random.choice(_TEXTS).encode()
