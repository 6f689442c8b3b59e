"""Archives: the manifest, writing, and reading for inspection. Requires neither torch nor numpy; runs no code.

docs/format.md specifies the format. `aotpack.runtime` runs archives.

Attributes are imported on first use: the runtime reads the signature of a model by modules of this package, and needs
no writer for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotpack.archive.constants import ConstantLayout, ConstantWriter, Placement, layout_constants
    from aotpack.archive.decode import decode_manifest
    from aotpack.archive.encode import encode_manifest
    from aotpack.archive.manifest import (
        Asset,
        Constant,
        Entry,
        FileEntry,
        Fold,
        Golden,
        GoldenTensor,
        Groups,
        Guard,
        Implementation,
        Kernel,
        Manifest,
        Module,
        Reference,
        Source,
        Step,
        Variant,
        Weights,
        WeightTensor,
    )
    from aotpack.archive.reader import ArchiveReader, read_manifest
    from aotpack.archive.writer import FileSource, StagedArchive, check_output, stage_archive, write_archive

__all__ = [
    "ArchiveReader",
    "Asset",
    "Constant",
    "ConstantLayout",
    "ConstantWriter",
    "Entry",
    "FileEntry",
    "FileSource",
    "Fold",
    "Golden",
    "GoldenTensor",
    "Groups",
    "Guard",
    "Implementation",
    "Kernel",
    "Manifest",
    "Module",
    "Placement",
    "Reference",
    "Source",
    "StagedArchive",
    "Step",
    "Variant",
    "WeightTensor",
    "Weights",
    "check_output",
    "decode_manifest",
    "encode_manifest",
    "layout_constants",
    "read_manifest",
    "stage_archive",
    "write_archive",
]

# By module; the others are of `manifest`.
_HOMES = {
    "constants": ("ConstantLayout", "ConstantWriter", "Placement", "layout_constants"),
    "decode": ("decode_manifest",),
    "encode": ("encode_manifest",),
    "reader": ("ArchiveReader", "read_manifest"),
    "writer": ("FileSource", "StagedArchive", "check_output", "stage_archive", "write_archive"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'aotpack.archive' has no attribute {name!r}")
    from importlib import import_module

    home = next((home for home, names in _HOMES.items() if name in names), "manifest")
    value = getattr(import_module(f"aotpack.archive.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
