"""The sources of an archive: the files that its modules are compiled from, in one compressed file (docs/format.md)."""

from __future__ import annotations

import base64
import binascii
import json
import lzma
import re
from collections.abc import Mapping
from typing import Any

from aotpack.archive.manifest import Manifest
from aotpack.archive.node import malformed

SOURCES_PATH = "sources/sources.json.xz"
# Uncompressed. The headers and kernels that a module includes have about 3 MB.
MAX_SOURCES = 256 << 20
# Of the decompressor; what `encode_sources` writes needs 65 MB.
_MAX_MEMORY = 512 << 20
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


def sources_file(manifest: Manifest) -> int | None:
    """The index of the file of the sources; None: the archive has none."""
    return next((index for index, file in enumerate(manifest.files) if file.path == SOURCES_PATH), None)


def encode_sources(files: Mapping[str, bytes]) -> bytes:
    """The bytes of the file of the sources. Equal files make equal bytes.

    Raises:
        ValueError: a path is not allowed, or the files have more than `MAX_SOURCES` bytes.
    """
    encoded: dict[str, Any] = {}
    for path, content in sorted(files.items()):
        if problem := source_path_problem(path):
            raise ValueError(problem)
        try:
            encoded[path] = content.decode("utf-8")
        except UnicodeDecodeError:
            encoded[path] = {"base64": base64.b64encode(content).decode("ascii")}
    data = json.dumps({"files": encoded}, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode("ascii")
    if len(data) > MAX_SOURCES:
        raise ValueError(f"the sources have {len(data)} bytes; at most {MAX_SOURCES} are allowed")
    return lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, preset=9)


def decode_sources(data: bytes) -> dict[str, bytes]:
    """The files by their paths in the folder.

    Raises:
        MalformedArchiveError: these are not the bytes of sources, or a path leads out of the folder.
    """
    try:
        value = json.loads(_decompress(data))
    except RecursionError:
        malformed("the sources are nested too deeply")
    except ValueError as error:
        malformed(f"the sources are not valid JSON: {error}")
    files = value.get("files") if isinstance(value, dict) else None
    if not isinstance(files, dict):
        malformed("the sources: 'files' should be an object")
    decoded: dict[str, bytes] = {}
    for path, content in files.items():
        if problem := source_path_problem(path):
            malformed(f"the sources: {problem}")
        decoded[path] = _content(path, content)
    for path in decoded:
        parts = path.split("/")
        if folder := next((f for n in range(1, len(parts)) if (f := "/".join(parts[:n])) in decoded), None):
            malformed(f"the sources: {folder!r} is both a file and a folder")
    return decoded


def source_path_problem(path: str) -> str | None:
    """Why `path` cannot be the path of a source, or None."""
    if any(part in ("", ".", "..") for part in path.split("/")) or _UNSAFE.search(path):
        return f"{path!r} is not a plain relative path"
    return None


def _decompress(data: bytes) -> bytes:
    try:
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_MEMORY)
        found = decompressor.decompress(data, MAX_SOURCES)
    except lzma.LZMAError as error:
        malformed(f"the sources are not compressed as they should be: {error}")
    if not decompressor.eof or decompressor.unused_data:
        malformed(f"the sources are incomplete, or have more than {MAX_SOURCES} bytes")
    return found


def _content(path: str, content: Any) -> bytes:
    if isinstance(content, str):
        try:
            return content.encode("utf-8")
        except UnicodeEncodeError:
            malformed(f"the sources: {path!r} is not Unicode text")
    if not isinstance(content, dict) or not isinstance(content.get("base64"), str):
        malformed(f"the sources: {path!r} should be a string or an object with 'base64'")
    try:
        return base64.b64decode(content["base64"], validate=True)
    except (binascii.Error, ValueError):
        malformed(f"the sources: {path!r} is not valid base64")
