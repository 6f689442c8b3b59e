"""The structure of arguments and results: flattens nested arguments and rebuilds nested results.

This is the slow path of a call, for nested signatures and for the errors of invalid calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from aotpack.archive.decode import decode_manifest
from aotpack.archive.manifest import Manifest
from aotpack.errors import InputError
from aotpack.spec import (
    CallSpec,
    DataclassSpec,
    DictSpec,
    ListSpec,
    Spec,
    TensorLeaf,
    TupleSpec,
    ValueLeaf,
    name_of_value,
    plain_key,
)


@lru_cache(maxsize=16)
def manifest_of(data: bytes) -> Manifest:
    """The manifest that `data` encodes; cached."""
    return decode_manifest(data)


def flatten(spec: CallSpec, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors in the arguments of a call, in the order of the entry's inputs.

    Raises:
        InputError: the arguments do not have the structure of `spec`.
    """
    if len(args) > len(spec.args):
        accepted = "no positional arguments" if not spec.args else f"{_count(len(spec.args), 'positional argument')}"
        raise InputError(f"the entry accepts {accepted}, got {len(args)}", hint=_usage(spec))
    rest = dict(kwargs)
    tensors: dict[int, Any] = {}
    for position, (item, name) in enumerate(zip(spec.args, spec.names, strict=True)):
        label = name or f"#{position}"
        if position < len(args):
            if name is not None and name in rest:
                raise InputError(f"argument {label!r} is passed twice, by position and by name")
            _flatten(item, args[position], label, tensors)
        elif name is not None and name in rest:
            _flatten(item, rest.pop(name), label, tensors)
        else:
            raise InputError(f"argument {label!r} is missing", hint=_usage(spec))
    for key, item in zip(spec.kwargs_keys, spec.kwargs_items, strict=True):
        if key not in rest:
            raise InputError(f"argument {key!r} is missing", hint=_usage(spec))
        _flatten(item, rest.pop(key), key, tensors)
    if rest:
        raise InputError(f"unknown argument {next(iter(rest))!r}", hint=_usage(spec))
    return [tensors[i] for i in range(len(tensors))]


def flatten_value(spec: Spec, value: Any, name: str) -> dict[int, Any]:
    """The tensors in one argument, by input of the entry. None stands where the argument has None for a tensor.

    Raises:
        InputError: the argument, called `name` in the message, does not have the structure of `spec`.
    """
    tensors: dict[int, Any] = {}
    _flatten(spec, value, name, tensors)
    return tensors


def unflatten(spec: Spec, tensors: Sequence[Any]) -> Any:
    """The result with these tensors, which are in the order of the entry's outputs.

    A namedtuple or dataclass is an instance of its own class if the module of the class is already imported; otherwise
    a namedtuple with the same name and fields.
    """
    match spec:
        case TensorLeaf(index):
            return tensors[index]
        case ValueLeaf(value):
            return value
        case TupleSpec(items):
            return tuple(unflatten(item, tensors) for item in items)
        case ListSpec(items):
            return [unflatten(item, tensors) for item in items]
        case DictSpec(keys, items):
            return {key: unflatten(item, tensors) for key, item in zip(keys, items, strict=True)}
        case _:
            values = {key: unflatten(item, tensors) for key, item in zip(spec.keys, spec.items, strict=True)}
            return _make(spec.type, isinstance(spec, DataclassSpec), values)


def _make(type_name: str, dataclass: bool, values: dict[str, Any]) -> Any:
    import sys

    module, _, qualname = type_name.partition(":")
    # Never import a module, and call only a dataclass or namedtuple with exactly these fields: an archive must not
    # choose which code runs.
    cls: Any = sys.modules.get(module)
    for part in qualname.split("."):
        cls = getattr(cls, part, None)
    if isinstance(cls, type):
        if dataclass and set(getattr(cls, "__dataclass_fields__", ())) >= set(values):
            try:
                return cls(**values)
            except TypeError:
                pass  # another field has no default
        if not dataclass and issubclass(cls, tuple) and getattr(cls, "_fields", None) == tuple(values):
            return cls(*values.values())
    return _stand_in(qualname.rpartition(".")[2], tuple(values))(*values.values())


@lru_cache(maxsize=64)
def _stand_in(name: str, fields: tuple[str, ...]) -> Any:
    from collections import namedtuple

    # rename: a field name may not be an identifier.
    return namedtuple(name if name.isidentifier() else "Result", fields, rename=True)


def _flatten(spec: Spec, value: Any, path: str, tensors: dict[int, Any]) -> None:
    match spec:
        case TensorLeaf(index):
            tensors[index] = value
        case ValueLeaf(expected):
            if ValueLeaf(value) != spec and (expected is None or name_of_value(value) != expected):
                _fail(path, f"must be {expected!r}, the constant that the archive was built with; got {_short(value)}")
        case TupleSpec(items) | ListSpec(items):
            kind = tuple if isinstance(spec, TupleSpec) else list
            # Lists and tuples are interchangeable.
            if not isinstance(value, (tuple, list)):
                _fail(path, f"must be a {kind.__name__}, got {_short(value)}")
            if len(value) != len(items):
                _fail(path, f"must have {_count(len(items), 'item')}, got {len(value)}")
            for i, item in enumerate(items):
                _flatten(item, value[i], f"{path}[{i}]", tensors)
        case DictSpec(keys, items):
            if not hasattr(value, "keys"):
                _fail(path, f"must be a dict, got {_short(value)}")
            # Members of enums are represented by their values.
            given = {plain_key(key): key for key in value}
            for key in keys:
                if key not in given:
                    _fail(path, f"lacks the key {key!r}")
            if len(given) != len(keys) or len(given) != len(value):
                unknown = next(own for own in value if given[plain_key(own)] is not own or plain_key(own) not in keys)
                _fail(path, f"has the unknown key {unknown!r}")
            for key, item in zip(keys, items, strict=True):
                _flatten(item, value[given[key]], f"{path}[{key!r}]", tensors)
        case _:
            for key, item in zip(spec.keys, spec.items, strict=True):
                try:
                    field = getattr(value, key)
                except AttributeError:
                    _fail(path, f"must be a {spec.type.rpartition(':')[2]}; {_short(value)} has no field {key!r}")
                _flatten(item, field, f"{path}.{key}", tensors)


def _fail(path: str, message: str) -> NoReturn:
    raise InputError(f"argument {path!r} {message}")


def _short(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else repr(value[:40]) + "…"
    return f"a {type(value).__name__}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _usage(spec: CallSpec) -> str:
    names = [name or f"#{position}" for position, name in enumerate(spec.names)]
    keywords = [f"{key}=…" for key in spec.kwargs_keys]
    return f"the arguments are ({', '.join(names + keywords)})"
