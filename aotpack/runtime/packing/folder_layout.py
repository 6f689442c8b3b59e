"""What the folder of an unpacked archive contains, and where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aotpack.archive import Asset, FileEntry, Manifest
from aotpack.archive.layout import CONSTANT_ALIGNMENT

MANIFEST = "manifest.json"
README = "README.md"
# The hashes of the sources as they were unpacked: what differs from them was changed.
CHECKSUMS = "checksums.json"
WEIGHTS = "weights/weights.safetensors"
# Files of an archive that the folder has as they are; modules have code for devices in folders of their own.
KEPT = ("modules/", "goldens/", "reports/", "tuning/")
_WIDTH = 100


def readable_json(value: Any, indent: int = 0) -> str:
    """JSON with objects and lists in one line where they fit."""
    short = json.dumps(value, sort_keys=True)
    if not isinstance(value, dict | list) or len(short) + indent <= _WIDTH:
        return short
    room = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {readable_json(item, indent + 1)}" for key, item in sorted(value.items())]
    else:
        items = [readable_json(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{room}" + f",\n{room}".join(items) + f"\n{' ' * indent}{closing}"


def kept_files(manifest: Manifest) -> list[tuple[int, FileEntry]]:
    """The files that the folder has one by one, with their indices."""
    return [(index, file) for index, file in enumerate(manifest.files) if file.path.startswith(KEPT)]


def assets_by_file(manifest: Manifest) -> dict[int, dict[str, Asset]]:
    """The parts of each file of code for a device, by name; files whose parts cannot be files are left out."""
    found: dict[int, dict[str, Asset]] = {}
    clash: set[int] = set()
    modules = [module for entry in manifest.entries for variant in entry.variants for module in variant.modules]
    for asset in (asset for module in modules for asset in module.assets):
        parts = found.setdefault(asset.file, {})
        if parts.setdefault(asset.name, asset) != asset or not _is_file_name(asset.name):
            clash.add(asset.file)
    return {file: parts for file, parts in found.items() if file not in clash}


def joined_assets(parts: Mapping[str, bytes]) -> tuple[bytes, dict[str, int]]:
    """The file of these parts, in order, and where each begins."""
    data = bytearray()
    offsets = {}
    for name, content in parts.items():
        data.extend(bytes(-len(data) % CONSTANT_ALIGNMENT))
        offsets[name] = len(data)
        data.extend(content)
    return bytes(data), offsets


def in_order(parts: Mapping[str, Asset]) -> Sequence[str]:
    """The names of parts in the order in which they are in their file."""
    return sorted(parts, key=lambda name: parts[name].offset)


def _is_file_name(name: str) -> bool:
    return name not in ("", ".", "..") and not any(c in "/\\\0" or not c.isprintable() for c in name)
