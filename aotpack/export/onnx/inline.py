"""Finds the large constants inside of an ONNX file, so that they are read from there and the parser copies none.

A file is a protobuf message: ModelProto has a GraphProto, which has a TensorProto for each initializer, whose elements
are the bytes of one field.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

# Fields of messages, by their numbers.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LEAST = 1 << 16


@dataclass(frozen=True)
class Span:
    """Bytes of a file, from `start` up to `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class Split:
    """A file without its large constants.

    Attributes:
        message: the rest, a message in which these have no data.
        spans: where they are in the file, by place among the initializers.
    """

    message: bytes
    spans: dict[int, Span] = field(default_factory=dict)


@dataclass(frozen=True)
class Inline:
    """A file that was taken apart.

    Attributes:
        message: as in `Split`.
        data: reads the elements of the constant at a place among the initializers; None where the message has them.
    """

    message: bytes
    data: Callable[[int], memoryview | None]


# Of any element.
_ALIGNMENT = 16


def of_bytes(data: bytes) -> Inline:
    """A file in memory."""
    whole = memoryview(data)
    found = split(whole)

    def read(place: int) -> memoryview | None:
        span = found.spans.get(place)
        if span is None:
            return None
        array = np.frombuffer(whole[span.start : span.end], np.uint8)
        return (array if array.ctypes.data % _ALIGNMENT == 0 else array.copy()).data

    return Inline(found.message, read)


def of_file(path: Path) -> Inline:
    """A file, of which the large constants are mapped, or read where their elements are not aligned.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if not path.is_file() or not path.stat().st_size:
            return Inline(file.read(), lambda place: None)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as whole:
            found = split(whole)

    def read(place: int) -> memoryview | None:
        span = found.spans.get(place)
        if span is None:
            return None
        count = span.end - span.start
        if span.start % _ALIGNMENT:
            return np.fromfile(path, np.uint8, count, offset=span.start).data
        # Copied when it is written to, which nothing does; torch has no tensors that are read-only.
        return np.memmap(path, np.uint8, "c", span.start, (count,)).data

    return Inline(found.message, read)


@dataclass(frozen=True)
class _Field:
    number: int
    kind: int
    start: int
    value: Span


def split(data: memoryview) -> Split:
    """The file in two; what is no well-formed message is left to the parser as it is."""
    try:
        return _split(data)
    except (ValueError, IndexError):
        return Split(bytes(data))


def _split(data: memoryview) -> Split:
    (graph,) = [f for f in _fields(data, Span(0, len(data))) if f.number == _GRAPH]
    if graph.kind != _BYTES:
        return Split(bytes(data))
    found: dict[int, Span] = {}
    parts: list[bytes | memoryview] = []
    copied, place = graph.value.start, 0
    for each in _fields(data, graph.value):
        if each.number != _INITIALIZER or each.kind != _BYTES:
            continue
        if each.value.end - each.value.start >= _LEAST:
            raw = [f for f in _fields(data, each.value) if f.number == _RAW_DATA]
            if len(raw) == 1 and raw[0].kind == _BYTES and raw[0].value.end - raw[0].value.start >= _LEAST:
                rest = bytes(data[each.value.start : raw[0].start]) + bytes(data[raw[0].value.end : each.value.end])
                parts += [data[copied : each.start], _message(_INITIALIZER, rest)]
                copied = each.value.end
                found[place] = raw[0].value
        place += 1
    if not found:
        return Split(bytes(data))
    parts.append(data[copied : graph.value.end])
    whole: list[bytes | memoryview] = [data[: graph.start], _message(_GRAPH, b"".join(parts)), data[graph.value.end :]]
    return Split(b"".join(whole), found)


def _fields(data: memoryview, span: Span) -> Iterator[_Field]:
    """The fields of a message.

    Raises:
        ValueError: it is malformed.
    """
    at = span.start
    while at < span.end:
        start = at
        tag, at = _varint(data, at, span.end)
        number, kind = tag >> 3, tag & 7
        value = at
        if kind == _VARINT:
            _, at = _varint(data, at, span.end)
        elif kind == _BYTES:
            length, value = _varint(data, at, span.end)
            at = value + length
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of the kind {kind}")
        if at > span.end:
            raise ValueError("a field goes beyond its message")
        yield _Field(number, kind, start, Span(value, at))


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number in groups of 7 bits, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("a number without end")


def _message(number: int, value: bytes) -> bytes:
    """A field with a message."""
    head = bytearray([number << 3 | _BYTES])
    length = len(value)
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + value
