"""Reads archives for inspection, in Python alone and for any target: checks the container, gives the manifest and the
bytes of files, and verifies every byte on request. It never runs anything.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from aotpack.archive import layout
from aotpack.archive.decode import decode_manifest
from aotpack.archive.files import NotRegularError, open_regular
from aotpack.archive.manifest import FileEntry, Manifest
from aotpack.archive.node import MAX_BYTES, malformed
from aotpack.archive.writer import FileSource
from aotpack.errors import (
    ArchiveIOError,
    ArchiveNotFoundError,
    ForeignArchiveError,
    MissingWeightsError,
    TamperedArchiveError,
    TruncatedArchiveError,
    UnsupportedVersionError,
)
from aotpack.spec import DType

_CHUNK = 1 << 20
# How often the file's bytes are read at most for the sake of constants.
_MAX_READS = 4


class ArchiveReader:
    """An archive that is open for inspection. Opening checks structure and manifest; `verify` checks every byte.

    Raises (when opened):
        ArchiveNotFoundError: there is no such file.
        ArchiveIOError: it cannot be read.
        ForeignArchiveError, TruncatedArchiveError, MalformedArchiveError, TamperedArchiveError,
        UnsupportedVersionError: see docs/format.md, "Reading".
    """

    path: Path
    manifest: Manifest
    size: int

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._data = _map(self.path)
        self.size = len(self._data)
        try:
            self._records, comment_sha256 = _container(self._data)
            self.manifest = self._read_manifest(comment_sha256)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def read(self, file: int | str, offset: int = 0, nbytes: int | None = None) -> bytes:
        """`nbytes` bytes (None: all) of a file, by its index in the manifest or its path, from `offset` on.

        Raises:
            KeyError: there is no such file.
            ValueError: the file has fewer bytes.
        """
        record = self._record(file)
        if nbytes is None:
            nbytes = record.size - offset
        if offset < 0 or nbytes < 0 or offset + nbytes > record.size:
            raise ValueError(f"bytes {offset} to {offset + nbytes} of {record.name!r}, which has {record.size}")
        start = record.data_offset + offset
        return self._data[start : start + nbytes]

    def constant(self, index: int) -> bytes:
        """The bytes of a constant, by its index in the manifest.

        Raises:
            MissingWeightsError: it has none, because the archive is code-only.
        """
        constant = self.manifest.constants[index]
        if constant.location is None:
            raise MissingWeightsError(
                f"{self.path}: the archive is code-only: the constant {constant.name!r} has no bytes",
                hint=f"create an archive with weights: aotpack pack {self.path} --weights FILE -o OUTPUT",
            )
        return self.read(*constant.location)

    def source(self, file: int) -> FileSource:
        """A file, by its index in the manifest, to pack into another archive; needs the reader to be open.

        Packing it fails with a ValueError if its bytes do not match its hashes.
        """
        record, entry = self._record(file), self.manifest.files[file]
        chunks = partial(self._chunks, record, 0, record.size)
        return FileSource(entry.path, entry.size, entry.sha256, record.crc32, chunks)

    def verify(self) -> int:
        """Checks every byte of the archive and returns how many there are.

        Raises:
            TamperedArchiveError: a hash or checksum does not match.
            MalformedArchiveError: padding is not zero, or a bool constant has bytes other than 0 and 1.
        """
        for record in self._records:
            gap = self._data[record.data_offset - record.padding : record.data_offset]
            if gap.count(0) != len(gap):
                malformed(f"the padding before {record.name!r} is not zero")
        for record, file in zip(self._records[1:], self.manifest.files, strict=True):
            self._check(record, file)
        located = [(constant, place) for constant in self.manifest.constants if (place := constant.location)]
        ranges = {place for _, place in located}
        if sum(nbytes for *_, nbytes in ranges) // _MAX_READS > self.size:
            malformed(f"the constants overlap each other more than {_MAX_READS} times")
        digests: dict[tuple[int, int, int], str] = {}
        for constant, place in located:
            if place not in digests:
                digests[place] = self._sha256(self._record(place[0]), *place[1:])
            if digests[place] != constant.sha256:
                _tampered(f"the constant {constant.name!r} does not match its hash")
            if constant.dtype is DType.BOOL and not self._are_bools(*place):
                malformed(f"the constant {constant.name!r} is bool, but has bytes other than 0 and 1")
        return self.size

    def _are_bools(self, file: int, offset: int, nbytes: int) -> bool:
        chunks = self._chunks(self._record(file), offset, nbytes)
        return not any(chunk.translate(None, b"\0\1") for chunk in chunks)

    def _record(self, file: int | str) -> layout.Record:
        if isinstance(file, str):
            for record in self._records:
                if record.name == file:
                    return record
            raise KeyError(f"no file {file!r} in {self.path}")
        return self._records[1 + file]

    def _chunks(self, record: layout.Record, offset: int, nbytes: int) -> Iterator[bytes]:
        start = record.data_offset + offset
        for at in range(start, start + nbytes, _CHUNK):
            yield self._data[at : min(at + _CHUNK, start + nbytes)]

    def _sha256(self, record: layout.Record, offset: int, nbytes: int) -> str:
        digest = hashlib.sha256()
        for chunk in self._chunks(record, offset, nbytes):
            digest.update(chunk)
        return digest.hexdigest()

    def _check(self, record: layout.Record, file: FileEntry) -> None:
        digest, crc = hashlib.sha256(), 0
        for chunk in self._chunks(record, 0, record.size):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
        if digest.hexdigest() != file.sha256:
            _tampered(f"{record.name!r} does not match its hash")
        if crc != record.crc32:
            _tampered(f"{record.name!r} does not match its CRC-32")

    def _read_manifest(self, sha256: str) -> Manifest:
        record = self._records[0]
        if record.size > MAX_BYTES:
            malformed(f"the manifest has {record.size} bytes; at most {MAX_BYTES} are allowed")
        data = self._data[record.data_offset : record.end]
        if hashlib.sha256(data).hexdigest() != sha256:
            _tampered("the manifest does not match its hash")
        if zlib.crc32(data) != record.crc32:
            _tampered("the manifest does not match its CRC-32")
        manifest = decode_manifest(data)
        listed = [(file.path, file.size) for file in manifest.files]
        if listed != [(record.name, record.size) for record in self._records[1:]]:
            malformed("the manifest's files are not the entries of the container")
        return manifest


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest of the archive at `path`, after the checks that `ArchiveReader` makes when it opens."""
    with ArchiveReader(path) as reader:
        return reader.manifest


def _tampered(message: str) -> NoReturn:
    raise TamperedArchiveError(f"tampered archive: {message}")


def _foreign() -> NoReturn:
    raise ForeignArchiveError("not an aotpack archive")


def _truncated(message: str) -> NoReturn:
    raise TruncatedArchiveError(f"truncated archive: {message}")


def _map(path: Path) -> mmap.mmap | bytes:
    try:
        with open(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""  # which mmap refuses
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ArchiveNotFoundError(f"no such file: {path}") from None
    except NotRegularError as error:
        raise ArchiveIOError(str(error)) from None
    except OSError as error:
        raise ArchiveIOError(f"cannot read {path}: {error.strerror or error}") from None


def _container(data: mmap.mmap | bytes) -> tuple[list[layout.Record], str]:
    """The records in order and the manifest's SHA-256 from the comment."""
    if data[:4] != layout.LOCAL_MAGIC[: len(data)]:
        _foreign()
    end = _end_record(data)
    (_, _, _, entries, _, size, offset, _) = layout.END.unpack_from(data, end)
    sha256 = bytes(data[end + layout.END.size + len(layout.COMMENT_PREFIX) :]).decode("ascii", "replace")
    tail = end
    if size == 0xFFFFFFFF or offset == 0xFFFFFFFF:
        tail = end - layout.ZIP64_END.size - layout.ZIP64_LOCATOR.size
        if tail < 0:
            malformed("no room for the ZIP64 end record")
        size, offset = layout.ZIP64_END.unpack_from(data, tail)[8:10]
    if offset + size > len(data):
        _truncated("the central directory lies beyond the end of the file")
    if offset + size != tail:
        malformed("the central directory does not end where the end record starts")
    if not all(c in "0123456789abcdef" for c in sha256):
        malformed("the comment holds no SHA-256")
    if bytes(data[tail:]) != layout.end_records(entries, offset, size, sha256):
        malformed("a field of the end record")
    records = _directory(data, entries, offset, size)
    if records[0].name != layout.MANIFEST_NAME:
        malformed(f"the first entry is {records[0].name!r} instead of {layout.MANIFEST_NAME!r}")
    if len({record.name for record in records}) != len(records):
        malformed("two entries have the same name")
    return records, sha256


def _end_record(data: mmap.mmap | bytes) -> int:
    """Where the end record is; it must end the file."""
    at = len(data) - layout.END.size - layout.COMMENT_SIZE
    if at < 0 or data[at : at + 4] != layout.END_MAGIC:
        # Something else ends the file: say which kind of wrong it is.
        found = data.rfind(layout.END_MAGIC, max(0, len(data) - 0xFFFF - layout.END.size))
        if found < 0 or found + layout.END.size > len(data):
            name = data[30 : 30 + len(layout.MANIFEST_NAME)]
            if name != layout.MANIFEST_NAME.encode()[: len(name)]:
                _foreign()
            _truncated("the file ends before its end record")
        comment = data[found + layout.END.size : found + layout.END.size + len(layout.COMMENT_PREFIX)]
        if comment != layout.COMMENT_PREFIX[: len(comment)]:
            _check_comment(comment)
        if len(data) < found + layout.END.size + layout.COMMENT_SIZE:
            _truncated("the file ends before its end record does")
        malformed(f"{len(data) - found - layout.END.size - layout.COMMENT_SIZE} bytes follow the end record")
    _check_comment(data[at + layout.END.size : at + layout.END.size + len(layout.COMMENT_PREFIX)])
    return at


def _check_comment(comment: bytes) -> None:
    if comment == layout.COMMENT_PREFIX:
        return
    if comment.startswith(b"aotpack:"):
        raise UnsupportedVersionError(
            "the archive's container is of a version that this aotpack does not know", hint="update aotpack"
        )
    _foreign()


def _directory(data: mmap.mmap | bytes, entries: int, offset: int, size: int) -> list[layout.Record]:
    """Reads the central directory; every record, there and at its data, must be the one that we would write."""
    if not 1 <= entries <= layout.MAX_ENTRIES:
        malformed(f"{entries} entries")
    records: list[layout.Record] = []
    at, end, expected = offset, offset + size, 0
    for index in range(entries):
        if at + layout.CENTRAL.size > end or data[at : at + 4] != layout.CENTRAL_MAGIC:
            malformed(f"the central directory ends before its entry {index}")
        fields = layout.CENTRAL.unpack_from(data, at)
        crc32, data_size, name_length, extra_length = fields[7], fields[9], fields[10], fields[11]
        if at + layout.CENTRAL.size + name_length + extra_length > end:
            malformed(f"entry {index} of the central directory is longer than the directory")
        name_at = at + layout.CENTRAL.size
        name = data[name_at : name_at + name_length].decode("latin-1")
        if problem := layout.path_problem(name):
            malformed(f"entry {index}: {problem}")
        if data_size == 0xFFFFFFFF and extra_length >= 20:
            (data_size,) = struct.unpack_from("<Q", data, name_at + name_length + 4)
        record = layout.Record(name, data_size, crc32, expected)
        if record.end > offset:
            malformed(f"{name!r} runs into the central directory")
        header = record.central_header()
        if data[at : at + len(header)] != header:
            malformed(f"a field of the central directory's entry for {name!r} (or a hole or overlap before it)")
        local = record.local_header()
        if data[expected : expected + len(local)] != local:
            malformed(f"a field of the local header of {name!r}")
        records.append(record)
        at += len(header)
        expected = record.end
    if at != end:
        malformed("the central directory is longer than its entries")
    if expected != offset:
        malformed("there is a hole before the central directory")
    return records
