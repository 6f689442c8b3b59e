"""Writes archives: reproducibly, streaming, and all or nothing.

The bytes go to a temporary file in the folder of the output, which is synced and renamed over it; a reader of the
output meanwhile sees the old archive or the new one, never a half.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from aotpack.archive.decode import decode_manifest
from aotpack.archive.encode import encode_manifest
from aotpack.archive.files import kind_of, sync_folder
from aotpack.archive.layout import (
    MANIFEST_NAME,
    MAX_ENTRIES,
    PAGE,
    ROOM_NAME,
    Record,
    end_records,
    path_problem,
)
from aotpack.archive.manifest import FileEntry, Manifest
from aotpack.errors import BuildError

Buffer = bytes | bytearray | memoryview

# Until the length of a room is right.
_TRIES = 4


# Bytes of a write. For longer ones file systems ask for pages of 2 MiB, and a virtual machine its host for these: that
# takes five times as long as the write of one MiB after the other.
_PIECE = 1 << 20


def write_all(write: Callable[[memoryview], int], data: memoryview) -> None:
    """Writes all bytes; `write` returns how many it took of those that it was called with."""
    while data.nbytes:
        data = data[write(data[:_PIECE]) :]


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file to pack: its path inside, its size and hashes, and `chunks`, which yields its bytes anew on every call.

    `copy`, if there is one, appends the same bytes to a file descriptor in a faster way. `held`, if there is one, has
    them in a file that can become the archive. `from_bytes` and `from_chunks` compute size and hashes in one pass.
    """

    path: str
    size: int
    sha256: str
    crc32: int
    chunks: Callable[[], Iterable[Buffer]]
    copy: Callable[[int], None] | None = None
    held: Held | None = None

    @staticmethod
    def from_bytes(path: str, data: Buffer) -> FileSource:
        """A file of these bytes; `data` is kept, not copied, and must not change before it is written."""
        view = as_bytes(data)
        return FileSource(path, view.nbytes, hashlib.sha256(view).hexdigest(), zlib.crc32(view), lambda: (view,))

    @staticmethod
    def from_chunks(path: str | Callable[[str], str], chunks: Callable[[], Iterable[Buffer]]) -> FileSource:
        """A file of what `chunks()` yields; `path` may be a function of the SHA-256."""
        digest, crc, size = hashlib.sha256(), 0, 0
        for chunk in chunks():
            view = as_bytes(chunk)
            digest.update(view)
            crc = zlib.crc32(view, crc)
            size += view.nbytes
        sha256 = digest.hexdigest()
        return FileSource(path if isinstance(path, str) else path(sha256), size, sha256, crc, chunks)


class Held(Protocol):
    """The bytes of a source in a file without a name, at the offset at which an archive may have them."""

    offset: int

    def named(self, path: Path) -> int:
        """Gives the file a name, at which nothing is, and returns a descriptor that writes to it, with a lock. Not
        twice.

        Raises:
            OSError: that is not possible.
        """


def room(offset: int) -> FileSource:
    """A file of zeros, as long as the next one then has its data at `offset`: of no length if that is not possible.

    It is the first of an archive, and makes room for the manifest, which is complete only after the next file.
    """
    return FileSource(ROOM_NAME, offset, "", 0, lambda: ())


def room_of(manifest: Manifest) -> int:
    """The offset that an archive's room is made for; 0 for one without."""
    if len(manifest.files) < 2 or manifest.files[0].path != ROOM_NAME:
        return 0
    begin = Record(MANIFEST_NAME, len(encode_manifest(manifest)), 0, 0).end
    for file in manifest.files[:2]:
        record = Record(file.path, file.size, 0, begin)
        begin = record.end
    return record.data_offset


def as_bytes(data: Buffer) -> memoryview:
    """A flat view of a C-contiguous buffer's bytes.

    Raises:
        TypeError: the buffer is not C-contiguous.
    """
    view = memoryview(data)
    if view.nbytes == 0:
        return memoryview(b"")  # cast() refuses shapes with a zero
    return view if view.format == "B" and view.ndim == 1 and view.contiguous else view.cast("B")


class StagedArchive:
    """A complete archive in a temporary file beside its output, which it becomes by `commit`.

    As a context manager it removes the temporary file at the end, unless that has become the output.

    Attributes:
        path: of the temporary file.
        size: in bytes.
    """

    def __init__(self, path: Path, output: Path, size: int, lock: int) -> None:
        # Meanwhile others read the archive: nothing but the commit waits for the disk.
        self._disk = ThreadPoolExecutor(1)
        self._synced = self._disk.submit(os.fsync, lock)
        self.path = path
        self.size = size
        self._output = output
        # A descriptor: while it is open, no other process takes the file for a leftover.
        self._lock = lock

    def commit(self) -> None:
        """Puts the archive in the place of its output.

        Raises:
            OSError: that is not possible, or the archive cannot be written to the disk; the output is as it was before.
        """
        self._synced.result()
        os.replace(self.path, self._output)
        sync_folder(self._output.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self._disk.shutdown()
        os.close(self._lock)


def write_archive(output: str | os.PathLike[str], manifest: Manifest, sources: Sequence[FileSource]) -> int:
    """Writes an archive of `sources`, in this order, and returns its size in bytes.

    `manifest.files` is filled in from the sources; indices of files in the manifest count the sources.

    Raises:
        ValueError: a path is not allowed or appears twice, there are too many files, or a source's bytes are not
            those that were hashed.
        MalformedArchiveError: the manifest would not be readable.
        OSError: the file cannot be written. The output is then as it was before.
    """
    with stage_archive(output, manifest, sources) as staged:
        staged.commit()
        return staged.size


def stage_archive(output: str | os.PathLike[str], manifest: Manifest, sources: Sequence[FileSource]) -> StagedArchive:
    """Like `write_archive`, but the output stays as it is until `StagedArchive.commit`."""
    names = [MANIFEST_NAME] + [source.path for source in sources]
    if len(names) > MAX_ENTRIES:
        raise ValueError(f"{len(names)} entries; an archive has at most {MAX_ENTRIES}")
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the path {name!r} appears twice")
        seen.add(name)
        if problem := path_problem(name):
            raise ValueError(problem)

    sources, encoded = _with_manifest(manifest, sources)
    # What cannot be read must not be written.
    decode_manifest(encoded)
    first = FileSource.from_bytes(MANIFEST_NAME, encoded)

    output = Path(output)
    _remove_leftovers(output)
    temporary, descriptor, held = _create_beside(output, _in_place([first, *sources]))
    lock = os.dup(descriptor)
    try:
        with open(descriptor, "wb") as file:
            size = _write(file, [first, *sources], first.sha256, held)
            file.flush()
    except BaseException:
        os.close(lock)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return StagedArchive(temporary, output, size, lock)


def _with_manifest(manifest: Manifest, sources: Sequence[FileSource]) -> tuple[list[FileSource], bytes]:
    """The sources, a room at their begin as long as it has to be, and the encoded manifest of them."""
    sources = list(sources)
    has_room = bool(sources) and sources[0].path == ROOM_NAME and not sources[0].sha256
    if not has_room:
        return sources, _encoded(manifest, sources)
    offset, size = sources[0].size, 0
    # The manifest has the number, and is as long as its digits make it.
    for _ in range(_TRIES):
        sources[0] = FileSource.from_bytes(ROOM_NAME, bytes(size))
        encoded = _encoded(manifest, sources)
        begin = Record(MANIFEST_NAME, len(encoded), 0, 0).end
        # The header of the next file is on the page before its data.
        fitting = max(0, offset - PAGE - Record(ROOM_NAME, size, 0, begin).data_offset)
        if fitting == size:
            break
        size = fitting
    return sources, encoded


def _encoded(manifest: Manifest, sources: Sequence[FileSource]) -> bytes:
    files = tuple(FileEntry(source.path, source.size, source.sha256) for source in sources)
    return encode_manifest(dataclasses.replace(manifest, files=files))


def _in_place(sources: Sequence[FileSource]) -> FileSource | None:
    """The source that is in a file already at the place that it has in the archive."""
    offset = 0
    for source in sources:
        record = Record(source.path, source.size, source.crc32, offset)
        if source.held is not None and source.held.offset == record.data_offset:
            return source
        offset = record.end
    return None


def _create_beside(output: Path, held: FileSource | None) -> tuple[Path, int, FileSource | None]:
    """A file in the output's folder, locked until its descriptor and all duplicates are closed: that of `held`, or a
    new one. Also the source that it has already.
    """
    if held is not None and held.held is not None:
        temporary = _temporary_name(output)
        with contextlib.suppress(OSError):
            return temporary, held.held.named(temporary), held
    while True:
        temporary = _temporary_name(output)
        # O_EXCL: never through somebody's link. 0o666: as the umask says, like any other output.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Before it was locked, another process may have taken it for a leftover.
        if os.path.exists(temporary):
            return temporary, descriptor, None
        os.close(descriptor)


def _temporary_name(output: Path) -> Path:
    return output.with_name(f".{output.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _remove_leftovers(output: Path) -> None:
    """Removes what processes left that were killed while they wrote to `output`."""
    pattern = re.compile(rf"\.{re.escape(output.name)}\.\d+-[0-9a-f]{{8}}\.tmp")
    with contextlib.suppress(OSError), os.scandir(output.parent) as found:
        names = [item.path for item in found if pattern.fullmatch(item.name) and item.is_file(follow_symlinks=False)]
        for name in names:
            with contextlib.suppress(OSError), open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW)) as leftover:
                # The kernel released the lock of a process that is gone.
                fcntl.flock(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name)


def check_output(path: str | os.PathLike[str]) -> None:
    """Finds out before the work whether an archive can be written to `path`.

    Raises:
        BuildError: `path` is a folder or something else than a file, or its folder does not exist or cannot be written.
    """
    output = Path(path)
    folder = output.parent
    if not folder.is_dir():
        raise BuildError(f"the folder {folder} does not exist", hint="create it, or choose another output")
    if output.is_dir():
        raise BuildError(f"the output {output} is a folder", hint=f"name the file: {output / 'model.aotpack'}")
    if output.exists() and not output.is_file():
        raise BuildError(f"the output {output} is {kind_of(output.stat().st_mode)}, which an archive cannot replace")
    if not output.name or not os.access(folder, os.W_OK | os.X_OK):
        raise BuildError(f"the folder {folder} cannot be written", hint="choose another output")


def _write(file: BinaryIO, sources: Sequence[FileSource], manifest_sha256: str, held: FileSource | None = None) -> int:
    """Writes an archive to a file, which has the bytes of `held` already; the archive's size."""
    records = []
    offset = 0
    for source in sources:
        record = Record(source.path, source.size, source.crc32, offset)
        file.write(record.local_header())
        file.write(bytes(record.padding))
        if source is held:
            file.seek(record.end)
        elif source.copy is not None:
            file.flush()
            source.copy(file.fileno())
            file.seek(0, os.SEEK_END)
        else:
            _write_chunks(file, source)
        if file.tell() != record.end:
            raise ValueError(f"the bytes of {source.path!r} changed while the archive was written")
        records.append(record)
        offset = record.end
    directory = b"".join(record.central_header() for record in records)
    end = end_records(len(records), offset, len(directory), manifest_sha256)
    file.write(directory)
    file.write(end)
    return offset + len(directory) + len(end)


def _write_chunks(file: BinaryIO, source: FileSource) -> None:
    crc = 0
    for chunk in source.chunks():
        view = as_bytes(chunk)
        write_all(file.write, view)
        crc = zlib.crc32(view, crc)
    if crc != source.crc32:
        raise ValueError(f"the bytes of {source.path!r} changed while the archive was written")
