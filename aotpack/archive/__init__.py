"""Archives: the manifest, writing, and reading for inspection. Requires neither torch nor numpy; runs no code.

docs/format.md specifies the format. `aotpack.runtime` runs archives.
"""

from __future__ import annotations

from aotpack.archive.constants import ConstantLayout, Placement, layout_constants
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
    "Entry",
    "FileEntry",
    "FileSource",
    "Fold",
    "Golden",
    "GoldenTensor",
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
