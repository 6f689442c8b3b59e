"""Packs tensors into weight segments: aligned, deduplicated, content-addressed."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import io
import os
import tempfile
import zlib
from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from aotpack.archive import writer
from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.archive.writer import Buffer, FileSource, as_bytes, write_all

SEGMENT_LIMIT = 2 << 30
_CHUNK = 4 << 20
# What becomes a part of an archive starts on its way to the disk in pieces of so many bytes.
_FLUSH = 16 << 20

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
    room: int = 0,
) -> ConstantLayout[Key]:
    """Lays tensors out in the order given, each at a multiple of 64 bytes; equal bytes are stored once.

    Their bytes go to a temporary file at once, so that two tensors at a time are in memory: one is written while the
    next is computed. That file has no name: it is gone when the layout is, and when the process is killed.

    Args:
        tensors: keys and C-contiguous buffers. A buffer is needed until the one after the next is asked for.
        segment_limit: a segment takes tensors until it would exceed so many bytes; a larger tensor has one of its own.
        folder: of the temporary file; best on the file system of the archive. By default the system's.
        room: where an archive has the data of the first segment, if it can: then it need not be copied. The layout has
            a file that fills the room up. A multiple of the size of a page; 0: anywhere.

    Raises:
        ValueError: a key appears twice.
        TypeError: a buffer is not C-contiguous.
        OSError: the temporary file cannot be written.
    """
    placed: ConstantWriter[Key] = ConstantWriter(segment_limit=segment_limit, folder=folder, room=room)
    placed.place_all(tensors)
    return placed.layout()


class ConstantWriter(Generic[Key]):
    """Lays tensors out as `layout_constants` does, one by one, and can take the last ones back.

    Raises (when made, and by the methods that place tensors):
        OSError: the temporary file cannot be written.
    """

    def __init__(
        self,
        *,
        segment_limit: int = SEGMENT_LIMIT,
        folder: str | os.PathLike[str] | None = None,
        room: int = 0,
    ) -> None:
        self._room = room
        self._spool = _Spool(folder, room)
        self._segments: list[_Segment] = []
        self._placements: dict[Key, Placement] = {}
        self._known: dict[tuple[str, int], Placement] = {}
        self._limit = segment_limit
        # What there was before each tensor: bytes of the file, segments, and the last of these.
        self._before: list[tuple[int, int, _Segment | None]] = []

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._placements)

    def place(self, key: Key, buffer: Buffer, hashing: Executor | None = None) -> None:
        """Lays one tensor out. `hashing`: computes one of its two hashes, beside the other.

        Raises:
            ValueError: the key appears twice.
            TypeError: the buffer is not C-contiguous.
        """
        data = as_bytes(buffer)
        if key in self._placements:
            raise ValueError(f"the key {key!r} appears twice")
        # The segment's hash takes as long as the tensor's own; rarely is it in vain, as these bytes are there already.
        segment = self._segment_for(data.nbytes)
        longer = None if hashing is None else hashing.submit(segment.with_tensor, data)
        sha256 = hashlib.sha256(data).hexdigest()
        grown = segment.with_tensor(data) if longer is None else longer.result()
        self._before.append((self._spool.size, len(self._segments), self._segments[-1] if self._segments else None))
        placement = self._known.get((sha256, data.nbytes))
        if placement is None:
            placement = self._known[sha256, data.nbytes] = self._append(segment, grown, data, sha256)
        self._placements[key] = placement

    def place_all(self, tensors: Iterable[tuple[Key, Buffer]]) -> None:
        """Lays tensors out behind those that are there; each is hashed and written while the next is computed."""
        with ThreadPoolExecutor(1) as placing, ThreadPoolExecutor(1) as hashing:
            placed: Future[None] | None = None
            for key, buffer in tensors:
                data = as_bytes(buffer)
                if placed is not None:
                    placed.result()
                # The next tensor is computed meanwhile.
                placed = placing.submit(self.place, key, data, hashing)
                del buffer, data
            if placed is not None:
                placed.result()

    def keep(self, count: int) -> None:
        """Takes back all tensors but the first `count`."""
        if count >= len(self):
            return
        size, segments, last = self._before[count]
        del self._before[count:]
        for key in list(self._placements)[count:]:
            del self._placements[key]
        left = {(placement.sha256, placement.nbytes) for placement in self._placements.values()}
        self._known = {known: placement for known, placement in self._known.items() if known in left}
        del self._segments[segments:]
        if last is not None:
            self._segments[-1] = last
        self._spool.cut(size)

    def layout(self) -> ConstantLayout[Key]:
        """The layout of the tensors; none is placed any more."""
        segments = [segment.source(self._spool) for segment in self._segments]
        if not self._room:
            return ConstantLayout(tuple(segments), self._placements)
        if len(segments) == 1:
            segments[0] = replace(segments[0], held=self._spool)
        return ConstantLayout((writer.room(self._room), *segments), self._placements)

    def _segment_for(self, nbytes: int) -> _Segment:
        """The segment that a tensor goes to: the last one, or a new one."""
        last = self._segments[-1] if self._segments else None
        if last is None or (last.size and _align(last.size) + nbytes > self._limit):
            return _Segment(self._spool.size)
        return last

    def _append(self, segment: _Segment, grown: _Segment, data: memoryview, sha256: str) -> Placement:
        if not self._segments or segment is not self._segments[-1]:
            self._segments.append(segment)
        offset = _align(segment.size)
        for part in (memoryview(bytes(offset - segment.size)), data):
            self._spool.append(part)
        self._segments[-1] = grown
        return Placement(len(self._segments) - 1 + (self._room > 0), offset, data.nbytes, sha256)


@dataclass
class _Segment:
    start: int
    size: int = 0
    crc32: int = 0
    sha256: hashlib._Hash = field(default_factory=hashlib.sha256)

    def with_tensor(self, data: memoryview) -> _Segment:
        """This one and a tensor at its end."""
        grown = _Segment(self.start, self.size, self.crc32, self.sha256.copy())
        for part in (memoryview(bytes(_align(self.size) - self.size)), data):
            grown.sha256.update(part)
            grown.crc32 = zlib.crc32(part, grown.crc32)
            grown.size += part.nbytes
        return grown

    def source(self, spool: _Spool) -> FileSource:
        digest = self.sha256.hexdigest()
        chunks = partial(spool.read, self.start, self.size)
        copy = partial(spool.copy, self.start, self.size)
        return FileSource(f"weights/{digest}", self.size, digest, self.crc32, chunks, copy)


class _Spool:
    """A nameless file that is written once from front to back, from `offset` on."""

    def __init__(self, folder: str | os.PathLike[str] | None, offset: int = 0) -> None:
        self._file = _nameless(folder)
        self.offset = offset
        self._file.seek(offset)
        self.size = offset
        self._has_name = False

    def __del__(self) -> None:
        self._file.close()

    def append(self, data: memoryview) -> None:
        began, self.size = self.size, self.size + data.nbytes
        write_all(self._file.write, data)
        if self.offset and self.size // _FLUSH > began // _FLUSH:
            _start_writing(self._file.fileno())

    def cut(self, size: int) -> None:
        """Removes what is behind the first `size` bytes."""
        self._file.truncate(size)
        self._file.seek(size)
        self.size = size

    def named(self, path: Path) -> int:
        """See `Held`."""
        if self._has_name:
            raise FileExistsError(f"the file has a name already, other than {path}")
        known = f"/proc/self/fd/{self._file.fileno()}"
        descriptor = os.open(known, os.O_WRONLY)
        try:
            # Before it has the name: no other process takes it for a leftover.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # With a folder, which an absolute path does not need, Python calls what follows the symbolic link.
            os.link(known, path, src_dir_fd=descriptor, follow_symlinks=True)
        except BaseException:
            os.close(descriptor)
            raise
        self._has_name = True
        return descriptor

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
                write_all(partial(os.write, to), memoryview(chunk))


def _start_writing(descriptor: int) -> None:
    """Has the system bring to the disk what is not there, so that the archive waits for less of it in the end."""
    with contextlib.suppress(OSError, AttributeError):
        whole, begin = ctypes.c_int64(0), 2
        ctypes.CDLL(None).sync_file_range(descriptor, whole, whole, begin)


def _nameless(folder: str | os.PathLike[str] | None) -> io.FileIO:
    """A file without a name, which it may get later where the system can do that."""
    with contextlib.suppress(OSError):
        # It may become an output, whose permissions are those that the umask leaves.
        return io.FileIO(os.open(folder or tempfile.gettempdir(), os.O_RDWR | os.O_TMPFILE, 0o666), "r+")
    return tempfile.TemporaryFile(dir=folder, buffering=0)


def _align(offset: int) -> int:
    return -(-offset // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
