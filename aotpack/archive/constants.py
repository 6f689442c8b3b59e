"""Packs tensors into weight segments: aligned, deduplicated, content-addressed."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.archive.writer import Buffer, FileSource, as_bytes

SEGMENT_LIMIT = 2 << 30
_CHUNK = 4 << 20

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
    tensors: Iterable[tuple[Key, Buffer]],
    *,
    segment_limit: int = SEGMENT_LIMIT,
    folder: str | os.PathLike[str] | None = None,
) -> ConstantLayout[Key]:
    """Lays tensors out in the order given, each at a multiple of 64 bytes; equal bytes are stored once.

    Their bytes go to a temporary file at once, so that one tensor at a time is in memory. That file has no name: it is
    gone when the layout is, and when the process is killed.

    Args:
        tensors: keys and C-contiguous buffers. A buffer is not needed any more when the next one is asked for.
        segment_limit: a segment takes tensors until it would exceed so many bytes; a larger tensor has one of its own.
        folder: of the temporary file; best on the file system of the archive. By default the system's.

    Raises:
        ValueError: a key appears twice.
        TypeError: a buffer is not C-contiguous.
        OSError: the temporary file cannot be written.
    """
    placements: dict[Key, Placement] = {}
    known: dict[tuple[str, int], Placement] = {}
    segments: list[_Segment] = []
    with ThreadPoolExecutor(2) as pool:
        spool = _Spool(folder)
        for key, buffer in tensors:
            if key in placements:
                raise ValueError(f"the key {key!r} appears twice")
            data = as_bytes(buffer)
            sha256 = hashlib.sha256(data).hexdigest()
            placement = known.get((sha256, data.nbytes))
            if placement is None:
                if not segments or (segments[-1].size and _align(segments[-1].size) + data.nbytes > segment_limit):
                    segments.append(_Segment(spool.size))
                segment = segments[-1]
                offset = _align(segment.size)
                for part in (memoryview(bytes(offset - segment.size)), data):
                    # Both let go of the interpreter for large buffers.
                    hashed = pool.submit(segment.update, part)
                    spool.append(part)
                    hashed.result()
                placement = known[sha256, data.nbytes] = Placement(len(segments) - 1, offset, data.nbytes, sha256)
            placements[key] = placement
    return ConstantLayout(tuple(segment.source(spool) for segment in segments), placements)


@dataclass
class _Segment:
    start: int
    size: int = 0
    crc32: int = 0
    sha256: hashlib._Hash = field(default_factory=hashlib.sha256)

    def update(self, part: memoryview) -> None:
        self.sha256.update(part)
        self.crc32 = zlib.crc32(part, self.crc32)
        self.size += part.nbytes

    def source(self, spool: _Spool) -> FileSource:
        digest = self.sha256.hexdigest()
        chunks = partial(spool.read, self.start, self.size)
        copy = partial(spool.copy, self.start, self.size)
        return FileSource(f"weights/{digest}", self.size, digest, self.crc32, chunks, copy)


class _Spool:
    """A nameless file that is written once from front to back."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - open as long as the layout
        self.size = 0

    def __del__(self) -> None:
        self._file.close()

    def append(self, data: memoryview) -> None:
        self.size += data.nbytes
        while data.nbytes:
            # A raw write takes at most 2 GiB at a time.
            data = data[self._file.write(data) :]

    def read(self, start: int, size: int) -> Iterator[bytes]:
        end = start + size
        while start < end:
            chunk = os.pread(self._file.fileno(), min(_CHUNK, end - start), start)
            yield chunk
            start += len(chunk)

    def copy(self, start: int, size: int, to: int) -> None:
        """Appends bytes to the file behind descriptor `to`; within the kernel where it can."""
        end = start + size
        try:
            while start < end:
                start += os.copy_file_range(self._file.fileno(), to, end - start, start)
        except OSError:  # another file system, or one that cannot
            for chunk in self.read(start, end - start):
                view = memoryview(chunk)
                while view.nbytes:
                    view = view[os.write(to, view) :]


def _align(offset: int) -> int:
    return -(-offset // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
