"""Packs tensors into weight segments: aligned, deduplicated, content-addressed."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.archive.writer import Buffer, FileSource, as_bytes

SEGMENT_LIMIT = 2 << 30

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor's bytes lie: `offset` and `nbytes` of the segment `segments[segment]`."""

    segment: int
    offset: int
    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ConstantLayout(Generic[Key]):
    """`segments` are the files to pack, named `weights/<sha256>`; `placements` says where each key's bytes are."""

    segments: tuple[FileSource, ...]
    placements: dict[Key, Placement]


def layout_constants(
    tensors: Iterable[tuple[Key, Buffer]], *, segment_limit: int = SEGMENT_LIMIT
) -> ConstantLayout[Key]:
    """Lays tensors out in the order given, each at a multiple of 64 bytes; equal bytes are stored once.

    A segment takes tensors until it would exceed `segment_limit` bytes; a larger tensor has one of its own. The buffers
    must be C-contiguous; they are kept, not copied, and must not change before the archive is written.

    Raises:
        ValueError: a key appears twice.
        TypeError: a buffer is not C-contiguous.
    """
    placements: dict[Key, Placement] = {}
    known: dict[tuple[str, int], Placement] = {}
    contents: list[list[memoryview]] = []
    sizes: list[int] = []
    for key, buffer in tensors:
        if key in placements:
            raise ValueError(f"the key {key!r} appears twice")
        data = as_bytes(buffer)
        sha256 = hashlib.sha256(data).hexdigest()
        placement = known.get((sha256, data.nbytes))
        if placement is None:
            if not sizes or (sizes[-1] and _align(sizes[-1]) + data.nbytes > segment_limit):
                contents.append([])
                sizes.append(0)
            offset = _align(sizes[-1])
            if offset > sizes[-1]:
                contents[-1].append(memoryview(bytes(offset - sizes[-1])))
            contents[-1].append(data)
            sizes[-1] = offset + data.nbytes
            placement = known[sha256, data.nbytes] = Placement(len(sizes) - 1, offset, data.nbytes, sha256)
        placements[key] = placement
    segments = tuple(FileSource.from_chunks("weights/{}".format, partial(tuple, parts)) for parts in contents)
    return ConstantLayout(segments, placements)


def _align(offset: int) -> int:
    return -(-offset // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
