"""The container of an archive, byte by byte: docs/format.md, "Container". Writer and reader share it.

The reader rebuilds each record from what it says and compares, so a field that is not checked cannot exist.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

PAGE = 4096
CONSTANT_ALIGNMENT = 64
MANIFEST_NAME = "manifest.json"
ROOM_NAME = "weights/room"
COMMENT_PREFIX = b"aotpack:1:"
COMMENT_SIZE = len(COMMENT_PREFIX) + 64
MAX_ENTRIES = 65534
MAX_NAME = 255
# From here on a 32-bit field overflows into ZIP64. A variable only so that tests need no 4 GiB files.
ZIP64_LIMIT = 0xFFFFFFFF

LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"
ZIP64_END_MAGIC = b"PK\x06\x06"
ZIP64_LOCATOR_MAGIC = b"PK\x06\x07"

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
ZIP64_END = struct.Struct("<4sQ2H2I4Q")
ZIP64_LOCATOR = struct.Struct("<4sIQI")

_AP = (0x4150).to_bytes(2, "little")
_ZIP64_ID = 1
_DATE = 0x0021
_NAME = re.compile(r"[A-Za-z0-9._/-]+")


def path_problem(path: str) -> str | None:
    """Why `path` cannot be the name of an entry, or None."""
    if len(path) > MAX_NAME:
        return f"a name of {len(path)} bytes; at most {MAX_NAME} are allowed"
    if not _NAME.fullmatch(path):
        return f"{path!r} is not made of the characters A-Z a-z 0-9 . _ / -"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return f"{path!r} is not a plain relative path"
    return None


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the container. `offset` is that of its local header."""

    name: str
    size: int
    crc32: int
    offset: int

    def _local_zip64(self) -> bytes:
        return struct.pack("<2H2Q", _ZIP64_ID, 16, self.size, self.size) if self.size >= ZIP64_LIMIT else b""

    def header_size(self) -> int:
        """Bytes of the local header up to and including the head of the "AP" field."""
        return LOCAL.size + len(self.name) + len(self._local_zip64()) + 4

    @property
    def data_offset(self) -> int:
        """Where the data starts: the first multiple of the page size that leaves room for the header."""
        return -(-(self.offset + self.header_size()) // PAGE) * PAGE

    @property
    def padding(self) -> int:
        """The zero bytes before the data."""
        return self.data_offset - self.offset - self.header_size()

    @property
    def end(self) -> int:
        """Where the next entry, or the central directory, starts."""
        return self.data_offset + self.size

    def local_header(self) -> bytes:
        """The local header but its `padding`."""
        zip64 = self._local_zip64()
        size = min(self.size, 0xFFFFFFFF) if not zip64 else 0xFFFFFFFF
        name = self.name.encode("ascii")
        return (
            LOCAL.pack(
                LOCAL_MAGIC,
                45 if zip64 else 10,
                0,
                0,
                0,
                _DATE,
                self.crc32,
                size,
                size,
                len(name),
                len(zip64) + 4 + self.padding,
            )
            + name
            + zip64
            + _AP
            + struct.pack("<H", self.padding)
        )

    def central_header(self) -> bytes:
        """The entry of the central directory."""
        big_size, big_offset = self.size >= ZIP64_LIMIT, self.offset >= ZIP64_LIMIT
        body = (struct.pack("<2Q", self.size, self.size) if big_size else b"") + (
            struct.pack("<Q", self.offset) if big_offset else b""
        )
        extra = struct.pack("<2H", _ZIP64_ID, len(body)) + body if body else b""
        size = 0xFFFFFFFF if big_size else self.size
        name = self.name.encode("ascii")
        return (
            CENTRAL.pack(
                CENTRAL_MAGIC,
                45,
                45 if body else 10,
                0,
                0,
                0,
                _DATE,
                self.crc32,
                size,
                size,
                len(name),
                len(extra),
                0,
                0,
                0,
                0,
                0xFFFFFFFF if big_offset else self.offset,
            )
            + name
            + extra
        )


def end_records(entries: int, offset: int, size: int, manifest_sha256: str) -> bytes:
    """What follows the central directory of `size` bytes at `offset`: [ZIP64 records,] end record, comment."""
    comment = COMMENT_PREFIX + manifest_sha256.encode("ascii")
    zip64 = b""
    if offset >= ZIP64_LIMIT or size >= ZIP64_LIMIT:
        zip64 = ZIP64_END.pack(ZIP64_END_MAGIC, 44, 45, 45, 0, 0, entries, entries, size, offset)
        zip64 += ZIP64_LOCATOR.pack(ZIP64_LOCATOR_MAGIC, 0, offset + size, 1)
    field_size = 0xFFFFFFFF if size >= ZIP64_LIMIT else size
    field_offset = 0xFFFFFFFF if offset >= ZIP64_LIMIT else offset
    return zip64 + END.pack(END_MAGIC, 0, 0, entries, entries, field_size, field_offset, len(comment)) + comment
