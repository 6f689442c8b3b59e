"""An archive with sources becomes a folder that CMake builds and that `pack_folder` packs again."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive import ArchiveReader, Manifest, encode_manifest
from aotpack.archive.files import sync_folder
from aotpack.archive.folders import check_free, staged_folder
from aotpack.archive.node import parse_json
from aotpack.archive.safetensors_writer import write_safetensors
from aotpack.archive.sources import decode_sources, sources_file
from aotpack.errors import MissingSourcesError
from aotpack.runtime.packing.constant_bytes import stored_as, to_rows
from aotpack.runtime.packing.folder_layout import (
    CHECKSUMS,
    MANIFEST,
    README,
    WEIGHTS,
    assets_by_file,
    in_order,
    joined_assets,
    kept_files,
    readable_json,
)
from aotpack.runtime.packing.folder_readme import readme


@dataclass(frozen=True)
class UnpackReport:
    """What was unpacked.

    Attributes:
        path: the folder.
        files: how many files it has.
        sources: how many of them are sources, headers among them.
        modules: the modules that CMake builds, by their paths in the folder.
    """

    path: Path
    files: int
    sources: int
    modules: tuple[str, ...]


def unpack(archive: str | os.PathLike[str], folder: str | os.PathLike[str]) -> UnpackReport:
    """Writes an archive as a folder to read, change, build and pack again: sources, modules, weights, and the manifest.

    Needs neither torch nor a compiler, and runs nothing of the archive. Every byte of the archive is checked first. The
    folder appears when it is complete.

    Args:
        archive: an archive that was built with its sources (`aotpack build --sources`).
        folder: to create; an empty folder may be there.

    Raises:
        MissingSourcesError: the archive has no sources.
        ArchiveError: the archive cannot be read, or is damaged.
        BuildError: there is something at `folder` already, or its parent does not exist.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    check_free(folder)
    with ArchiveReader(archive) as reader:
        number = sources_file(reader.manifest)
        if number is None:
            raise MissingSourcesError(
                f"{archive}: the archive has no sources: it was built without --sources",
                hint="build it again with `aotpack build MODEL --sources -o FILE` (BuildOptions(sources=True))",
            )
        reader.verify()
        sources = decode_sources(reader.read(number))
        with staged_folder(folder) as room:
            modules = _write(reader, sources, room)
            files = sum(path.is_file() for path in room.rglob("*"))
            # An empty folder may be in its place.
            os.replace(room, folder)
    sync_folder(folder.parent)
    return UnpackReport(folder, files, len(sources), modules)


def _write(reader: ArchiveReader, sources: dict[str, bytes], room: Path) -> tuple[str, ...]:
    """Fills the folder; returns the paths of the modules."""
    manifest = reader.manifest
    for path, content in sources.items():
        _file(room, path, content)
    # After the sources: a module that is older than its sources is to be built again.
    parts_of = assets_by_file(manifest)
    for index, file in kept_files(manifest):
        data, parts = reader.read(index), parts_of.get(index, {})
        contents = {name: reader.read(index, parts[name].offset, parts[name].nbytes) for name in in_order(parts)}
        if parts and joined_assets(contents)[0] == data:
            for name, content in contents.items():
                _file(room, f"{file.path}/{name}", content)
        else:
            _file(room, file.path, data)
    _write_weights(reader, room)
    modules = {
        manifest.files[module.file].path: module
        for entry in manifest.entries
        for variant in entry.variants
        for module in variant.modules
    }
    checksums = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(sources.items())}
    _file(room, CHECKSUMS, f"{readable_json(checksums)}\n".encode())
    _file(room, MANIFEST, f"{readable_json(parse_json(encode_manifest(manifest)))}\n".encode())
    _file(room, README, readme(manifest, list(modules), sources).encode())
    return tuple(modules)


def _write_weights(reader: ArchiveReader, room: Path) -> None:
    """The constants that the archive has, by their names, in the order in which they are stored."""
    manifest: Manifest = reader.manifest
    present = [(place, index) for index, each in enumerate(manifest.constants) if (place := each.location) is not None]
    numbers = {manifest.constants[index].name: index for _, index in sorted(present)}
    (room / WEIGHTS).parent.mkdir(exist_ok=True)
    write_safetensors(
        room / WEIGHTS,
        {name: stored_as(manifest.constants[index]) for name, index in numbers.items()},
        lambda name: to_rows(manifest.constants[numbers[name]], reader.constant(numbers[name])),
    )


def _file(room: Path, path: str, content: bytes) -> None:
    target = room / path
    target.parent.mkdir(parents=True, exist_ok=True)
    # Never over another file, also where the file system takes two names for one.
    with open(target, "xb") as file:
        file.write(content)
