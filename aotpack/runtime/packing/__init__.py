"""Packing: an updatable archive with other weights becomes an archive of its own, without torch and a compiler; an
archive with sources becomes a folder, and the folder an archive.
"""

from __future__ import annotations

from aotpack.runtime.packing.export_weights import ExportReport, export_weights
from aotpack.runtime.packing.pack import PackReport, pack_weights
from aotpack.runtime.packing.pack_folder import FolderReport, pack_folder
from aotpack.runtime.packing.unpack import UnpackReport, unpack

__all__ = [
    "ExportReport",
    "FolderReport",
    "PackReport",
    "UnpackReport",
    "export_weights",
    "pack_folder",
    "pack_weights",
    "unpack",
]
