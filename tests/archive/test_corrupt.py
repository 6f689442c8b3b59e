"""Every kind of broken archive has its own error, in Python's reader and in the runtime alike, and none crashes."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotpack
from aotpack.archive import ArchiveReader, FileSource, encode_manifest, layout
from aotpack.archive.manifest import FORMAT_VERSION, READABLE_VERSIONS
from aotpack.archive.writer import _write
from aotpack.errors import (
    ArchiveError,
    ArchiveIOError,
    ArchiveNotFoundError,
    ForeignArchiveError,
    MalformedArchiveError,
    TamperedArchiveError,
    TruncatedArchiveError,
    UnsupportedVersionError,
)
from tests.support.files import write_anew

Check = Callable[[Path], Any]


def read_fully(path: Path) -> None:
    with ArchiveReader(path) as reader:
        reader.verify()


def load_fully(path: Path) -> None:
    aotpack.load(path, verify="full")


@pytest.fixture(params=[read_fully, load_fully], ids=["python", "runtime"])
def check(request: pytest.FixtureRequest) -> Check:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def good(archive: Callable[[str], Path]) -> bytes:
    return archive("affine").read_bytes()


class Parts:
    """An archive taken apart, to be put together wrongly."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.end = len(data) - layout.END.size - layout.COMMENT_SIZE
        fields = layout.END.unpack_from(data, self.end)
        self.entries, self.size, self.offset = fields[4], fields[5], fields[6]
        self.central = []  # offsets of the central headers
        self.local = []  # offsets of the local headers
        at = self.offset
        for _ in range(self.entries):
            header = layout.CENTRAL.unpack_from(data, at)
            self.central.append(at)
            self.local.append(header[16])
            at += layout.CENTRAL.size + header[10] + header[11]

    def data_start(self, index: int) -> int:
        header = layout.LOCAL.unpack_from(self.data, self.local[index])
        return self.local[index] + layout.LOCAL.size + header[9] + header[10]

    def put(self, at: int, value: bytes) -> bytes:
        self.data[at : at + len(value)] = value
        return bytes(self.data)

    def with_manifest(self, old: bytes, new: bytes) -> bytes:
        """`old` in the manifest becomes `new`, of the same length, and all hashes of it are made right again."""
        assert len(old) == len(new)
        start = self.data_start(0)
        size = layout.CENTRAL.unpack_from(self.data, self.central[0])[9]
        manifest = bytes(self.data[start : start + size])
        assert manifest.count(old) >= 1
        manifest = manifest.replace(old, new, 1)
        self.put(start, manifest)
        crc = zlib.crc32(manifest).to_bytes(4, "little")
        self.put(self.local[0] + 14, crc)
        self.put(self.central[0] + 16, crc)
        return self.put(len(self.data) - 64, hashlib.sha256(manifest).hexdigest().encode())


def u16(value: int) -> bytes:
    return value.to_bytes(2, "little")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


CASES: dict[str, tuple[Callable[[Parts], bytes], type[ArchiveError]]] = {
    # foreign
    "magic": (lambda p: p.put(0, b"GIF8"), ForeignArchiveError),
    "no aotpack comment": (lambda p: p.put(p.end + 22, b"otherthing"), ForeignArchiveError),
    "a text file": (lambda p: b"hello, world" * 1000, ForeignArchiveError),
    # versions
    "container version": (lambda p: p.put(p.end + 22, b"aotpack:2:"), UnsupportedVersionError),
    "format version": (
        lambda p: p.with_manifest(b'"format_version":9', b'"format_version":2'),
        UnsupportedVersionError,
    ),
    # end record
    "disk number": (lambda p: p.put(p.end + 4, u16(1)), MalformedArchiveError),
    "entries on disk": (lambda p: p.put(p.end + 8, u16(p.entries + 1)), MalformedArchiveError),
    "entry count": (lambda p: p.put(p.end + 8, u16(p.entries + 1) * 2), MalformedArchiveError),
    "no entries": (lambda p: p.put(p.end + 8, u16(0) * 2), MalformedArchiveError),
    "directory size": (lambda p: p.put(p.end + 12, u32(p.size - 1)), MalformedArchiveError),
    "directory offset": (lambda p: p.put(p.end + 16, u32(p.offset - 1)), MalformedArchiveError),
    "directory beyond the file": (lambda p: p.put(p.end + 16, u32(0x7FFFFFFF)), TruncatedArchiveError),
    "comment hash digits": (lambda p: p.put(len(p.data) - 64, b"Z" * 64), MalformedArchiveError),
    # central directory
    "central magic": (lambda p: p.put(p.central[1], b"PK\x01\x03"), MalformedArchiveError),
    "central method": (lambda p: p.put(p.central[1] + 10, u16(8)), MalformedArchiveError),
    "central flags": (lambda p: p.put(p.central[1] + 8, u16(1)), MalformedArchiveError),
    "central date": (lambda p: p.put(p.central[1] + 14, u16(0)), MalformedArchiveError),
    "central crc": (lambda p: p.put(p.central[1] + 16, u32(1)), MalformedArchiveError),
    "central size": (lambda p: p.put(p.central[1] + 24, u32(7)), MalformedArchiveError),
    "central name length": (lambda p: p.put(p.central[1] + 28, u16(5)), MalformedArchiveError),
    "central name length overflow": (lambda p: p.put(p.central[-1] + 28, u16(0xFFFF)), MalformedArchiveError),
    "central extra length": (lambda p: p.put(p.central[1] + 30, u16(4)), MalformedArchiveError),
    "central comment length": (lambda p: p.put(p.central[1] + 32, u16(1)), MalformedArchiveError),
    "central attributes": (lambda p: p.put(p.central[1] + 38, u32(1)), MalformedArchiveError),
    "overlapping entries": (lambda p: p.put(p.central[2] + 42, u32(p.local[1])), MalformedArchiveError),
    "hole": (lambda p: p.put(p.central[1] + 42, u32(p.local[1] + 4096)), MalformedArchiveError),
    "name": (lambda p: p.put(p.central[1] + 46, b"weights/\xff"), MalformedArchiveError),
    "path that leaves": (lambda p: p.put(p.central[1] + 46, b"../../../"), MalformedArchiveError),
    # local headers
    "local magic": (lambda p: p.put(p.local[1], b"PK\x03\x05"), MalformedArchiveError),
    "local version": (lambda p: p.put(p.local[1] + 4, u16(20)), MalformedArchiveError),
    "local method": (lambda p: p.put(p.local[1] + 8, u16(8)), MalformedArchiveError),
    "local crc": (lambda p: p.put(p.local[1] + 14, u32(1)), MalformedArchiveError),
    "local size": (lambda p: p.put(p.local[1] + 18, u32(1)), MalformedArchiveError),
    "local name": (lambda p: p.put(p.local[1] + 30, b"x"), MalformedArchiveError),
    "local extra id": (lambda p: p.put(p.local[0] + 43, b"XX"), MalformedArchiveError),
    "padding": (lambda p: p.put(p.data_start(1) - 1, b"\x01"), MalformedArchiveError),
    # contents
    "manifest byte": (lambda p: p.put(p.data_start(0) + 20, b"~"), TamperedArchiveError),
    "manifest hash": (lambda p: p.put(len(p.data) - 64, b"0" * 64), TamperedArchiveError),
    "weights": (lambda p: p.put(p.data_start(1), b"\xff"), TamperedArchiveError),
    "module": (lambda p: p.put(p.data_start(2) + 64, b"\xff\xfe\xfd"), TamperedArchiveError),
    "golden": (lambda p: p.put(p.data_start(3), b"\xff"), TamperedArchiveError),
    # manifest
    "format": (lambda p: p.with_manifest(b'"format":"aotpack"', b'"format":"aotpick"'), MalformedArchiveError),
    "not json": (lambda p: p.with_manifest(b'{"constants"', b'["constants"'), MalformedArchiveError),
    "unknown key": (lambda p: p.with_manifest(b'"producer"', b'"prodigal"'), MalformedArchiveError),
    "duplicate key": (
        lambda p: p.with_manifest(b'"outputs":[{"device"', b'"outputs":[{"number"'),
        MalformedArchiveError,
    ),
    "wrong type": (lambda p: p.with_manifest(b'"mutated":false', b'"mutated":12345'), MalformedArchiveError),
    "float for an int": (lambda p: p.with_manifest(b'"max":64', b'"max":4.'), MalformedArchiveError),
    "unknown dtype": (lambda p: p.with_manifest(b'"float32"', b'"float31"'), MalformedArchiveError),
    "unknown role": (lambda p: p.with_manifest(b'"parameter"', b'"pirameter"'), MalformedArchiveError),
    "file index": (lambda p: p.with_manifest(b'"file":0', b'"file":9'), MalformedArchiveError),
    "file of a wrong kind": (lambda p: p.with_manifest(b'"file":0', b'"file":1'), MalformedArchiveError),
    "constant index": (lambda p: p.with_manifest(b'"constants":[0]', b'"constants":[1]'), MalformedArchiveError),
    "tensor index": (lambda p: p.with_manifest(b'{"index":0', b'{"index":1'), MalformedArchiveError),
    "unknown dim": (lambda p: p.with_manifest(b'"dim":"batch"', b'"dim":"botch"'), MalformedArchiveError),
    "constant too large": (lambda p: p.with_manifest(b'"nbytes":16', b'"nbytes":99'), MalformedArchiveError),
    "constant offset": (lambda p: p.with_manifest(b'"offset":0', b'"offset":1'), MalformedArchiveError),
    "order": (lambda p: p.with_manifest(b'"order":[0,1]', b'"order":[0,0]'), MalformedArchiveError),
    "file path": (
        lambda p: p.with_manifest(b'"path":"modules/x86-64-v3', b'"path":"modules/x86-64-v4'),
        MalformedArchiveError,
    ),
    "white space": (
        lambda p: p.with_manifest(b'"min":1,"multiple_of"', b'"min": 1,"multiple_o"'),
        MalformedArchiveError,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_named_error(name: str, good: bytes, check: Check, tmp_path: Path) -> None:
    corrupt, error = CASES[name]
    path = tmp_path / "bad.aotpack"
    broken = corrupt(Parts(good))
    assert broken != good
    path.write_bytes(broken)
    with pytest.raises(error) as info:
        check(path)
    assert type(info.value) is error, info.value
    assert str(info.value)


def test_good_one_passes(good: bytes, check: Check, tmp_path: Path) -> None:
    (tmp_path / "good.aotpack").write_bytes(good)
    check(tmp_path / "good.aotpack")


def _in_version(version: int, good: bytes, tmp_path: Path) -> Path:
    """The good archive as one of another version; with its keys, if that can be read."""
    (tmp_path / "good.aotpack").write_bytes(good)
    with ArchiveReader(tmp_path / "good.aotpack") as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
    encoded = encode_manifest(
        dataclasses.replace(reader.manifest, format_version=version if version in READABLE_VERSIONS else FORMAT_VERSION)
    )
    numbered = re.sub(rb'"format_version":\d+', b'"format_version":%d' % version, encoded)
    first = FileSource.from_bytes("manifest.json", numbered)
    with open(tmp_path / "other.aotpack", "wb") as output:
        _write(output, [first, *files], first.sha256)
    return tmp_path / "other.aotpack"


@pytest.mark.parametrize("version", [0, 2, FORMAT_VERSION + 1, 99])
def test_other_versions_are_refused_by_number(version: int, good: bytes, check: Check, tmp_path: Path) -> None:
    path = _in_version(version, good, tmp_path)
    with pytest.raises(UnsupportedVersionError, match=rf"format version {version}\b.* reads .*\b{FORMAT_VERSION}\b"):
        check(path)


@pytest.mark.parametrize("version", READABLE_VERSIONS)
def test_earlier_versions_pass(version: int, good: bytes, check: Check, tmp_path: Path) -> None:
    check(_in_version(version, good, tmp_path))


def test_constant_hash(good: bytes, check: Check, tmp_path: Path) -> None:
    old = good[good.index(b'"sha256":"') + 10 :][:64]
    (tmp_path / "bad.aotpack").write_bytes(Parts(good).with_manifest(old, b"0" * 64))
    with pytest.raises(TamperedArchiveError):
        check(tmp_path / "bad.aotpack")


def test_bytes_after_the_end(good: bytes, check: Check, tmp_path: Path) -> None:
    (tmp_path / "long.aotpack").write_bytes(good + b"\0")
    # The end record is not where it must be; whether something was cut off or put on, nobody can tell.
    with pytest.raises((MalformedArchiveError, TruncatedArchiveError)):
        check(tmp_path / "long.aotpack")


def test_truncated_everywhere(good: bytes, check: Check, tmp_path: Path) -> None:
    path = tmp_path / "short.aotpack"
    places = {int(i * len(good) / 100) for i in range(100)} | set(range(64)) | {len(good) - i for i in range(1, 200)}
    for length in sorted(places):
        write_anew(path, good[:length])
        with pytest.raises(TruncatedArchiveError):
            check(path)


def test_no_flipped_bit_passes(good: bytes, check: Check, tmp_path: Path) -> None:
    path = tmp_path / "flipped.aotpack"
    parts = Parts(good)
    generator = random.Random(0)
    # Every byte of the directory and the headers; a sample of the rest.
    places = set(range(parts.offset, len(good))) | {at + i for at in parts.local for i in range(80)}
    places |= {generator.randrange(len(good)) for _ in range(300)}
    for at in sorted(places):
        broken = bytearray(good)
        broken[at] ^= 1 << generator.randrange(8)
        write_anew(path, bytes(broken))
        with pytest.raises(ArchiveError):
            check(path)


def test_missing_and_unreadable(check: Check, tmp_path: Path) -> None:
    with pytest.raises(ArchiveNotFoundError, match="nothing"):
        check(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "nothing")
    with pytest.raises(ArchiveIOError):
        check(tmp_path)
