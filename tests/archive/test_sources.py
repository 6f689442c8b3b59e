"""The file of sources in an archive: what is written is read back, and what is malformed is an error."""

from __future__ import annotations

import json
import lzma

import pytest

from aotpack.archive import sources
from aotpack.archive.sources import decode_sources, encode_sources
from aotpack.errors import MalformedArchiveError

FILES = {
    "src/a.cpp": b"int x; // \xc3\xa9\n",
    "custom/objects/k.o": b"\x7fELF\xff\xfe",
    "empty.h": b"",
    "a b/é.h": b"\r\n",
}


def packed(value: object) -> bytes:
    return lzma.compress(json.dumps(value).encode())


def test_round_trip() -> None:
    data = encode_sources(FILES)
    assert decode_sources(data) == FILES
    assert encode_sources(dict(reversed(FILES.items()))) == data


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\nb", "a\\b", "a\0"])
def test_paths_that_lead_elsewhere(path: str) -> None:
    with pytest.raises(ValueError, match="is not a plain relative path"):
        encode_sources({path: b""})
    with pytest.raises(MalformedArchiveError, match="is not a plain relative path"):
        decode_sources(packed({"files": {path: ""}}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "incomplete"),
        (b"this is not an xz file", "not compressed"),
        (encode_sources(FILES)[:-1], "incomplete"),
        (encode_sources(FILES) + b"x", "incomplete"),
        (lzma.compress(b"{"), "not valid JSON"),
        (lzma.compress(b"[" * 100_000), "nested too deeply"),
        (packed([]), "'files' should be an object"),
        (packed({"files": []}), "'files' should be an object"),
        (packed({"files": {"a": 1}}), "'a' should be a string"),
        (packed({"files": {"a": {"base64": "?"}}}), "not valid base64"),
        (packed({"files": {"a": "\ud800"}}), "not Unicode"),
        (packed({"files": {"a": "", "a/b": ""}}), "both a file and a folder"),
        (lzma.compress(b"x", format=lzma.FORMAT_ALONE), "not compressed"),
    ],
)
def test_malformed(data: bytes, message: str) -> None:
    with pytest.raises(MalformedArchiveError, match=message):
        decode_sources(data)


def test_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed({"files": {"a": "x" * 5000}})
    monkeypatch.setattr(sources, "MAX_SOURCES", 4096)
    with pytest.raises(MalformedArchiveError, match="more than 4096 bytes"):
        decode_sources(bomb)
    with pytest.raises(ValueError, match="at most 4096"):
        encode_sources({"a": b"x" * 5000})
