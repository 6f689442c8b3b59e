"""The folder of an unpacked archive becomes an archive."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive import (
    FileSource,
    Manifest,
    check_output,
    decode_manifest,
    layout_constants,
    stage_archive,
)
from aotpack.archive.encode import canonical
from aotpack.archive.renumber import renumbered
from aotpack.archive.sources import SOURCES_PATH, encode_sources
from aotpack.archive.writer import room_of
from aotpack.errors import FolderError, MalformedArchiveError
from aotpack.runtime.packing.clock import Clock, Progress
from aotpack.runtime.packing.folder_layout import MANIFEST, assets_by_file, in_order, joined_assets, kept_files
from aotpack.runtime.packing.folder_sources import FolderFiles, read_folder, refuse, stale
from aotpack.runtime.packing.folder_weights import FolderWeights

_MODULE = b"aotpack_module_query\0"


@dataclass(frozen=True)
class FolderReport:
    """What was packed.

    Attributes:
        path, size: the archive and its bytes.
        modules: the paths of modules, and of code for devices, that are not those of the unpacked archive.
        constants: the names of constants with other values.
        goldens: whether the archive has example calls.
        dropped: whether example calls were left out.
        seconds: by phase: pack, write.
    """

    path: Path
    size: int
    modules: tuple[str, ...]
    constants: tuple[str, ...]
    goldens: bool
    dropped: bool
    seconds: dict[str, float]


def pack_folder(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    goldens: bool | None = None,
    progress: Progress | None = None,
) -> FolderReport:
    """Writes an archive from a folder that `unpack` made. Runs nothing of it. The archive of an unchanged folder is the
    one that was unpacked, byte for byte.

    Args:
        folder: the folder, with modules that are built from its sources.
        output: the archive to write. An existing file is replaced once the new one is complete.
        goldens: keep the example calls. Default: if neither modules nor weights were changed, since their answers are
            those of the old ones.
        progress: called with (phase, None, "") when a phase begins, and (phase, seconds, "") when it ends.

    Raises:
        FolderError: files are missing or belong to nothing, modules are older than sources that were changed, or
            weights do not match the manifest. All of them are listed.
        MalformedArchiveError: the manifest violates the format.
        WeightsFileError, WeightsNotFoundError: the file of the weights is malformed or missing.
        BuildError, OSError: the output cannot be written.
    """
    folder, output = Path(folder), Path(output)
    check_output(output)
    if output.absolute().resolve().is_relative_to(folder.resolve()):
        raise FolderError(f"the output {output} is in the folder that is packed", hint="choose another output")
    clock = Clock(progress)
    clock.begin("pack")
    files = read_folder(folder)
    manifest = _manifest(folder)
    kept = _Kept(manifest, files)
    modules = kept.changed()
    with FolderWeights(folder, manifest) as weights:
        refuse(folder, weights.problems())
        layout = layout_constants(weights.values(), folder=output.parent, room=room_of(manifest))
        differing = weights.changed(layout.placements)
        refuse(folder, weights.folded(differing))
    keep = goldens if goldens is not None else not (modules or differing)
    clock.begin("write")
    numbers, sources = kept.sources(len(layout.segments), goldens=keep)
    if files.changed:
        # The sources are not those of the build.
        producer = {key: text for key, text in manifest.producer.items() if key != "source_sha256"}
        manifest = dataclasses.replace(manifest, producer=producer)
    packed = renumbered(manifest, layout.placements, numbers, assets=kept.assets, goldens=keep)
    with stage_archive(output, packed, [*layout.segments, *sources]) as staged:
        staged.commit()
    clock.end()
    had, has = (any(entry.goldens for entry in each.entries) for each in (manifest, packed))
    names = tuple(manifest.constants[index].name for index in differing)
    return FolderReport(output, staged.size, modules, names, has, had and not has, clock.seconds)


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FolderError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:
        raise MalformedArchiveError(f"{path} is not valid JSON: {error}") from error
    try:
        encoded = canonical(value)
    except ValueError as error:
        raise MalformedArchiveError(f"{path}: {error}") from error
    return decode_manifest(encoded)


class _Kept:
    """The files of the archive but its weights, as the folder has them.

    Raises:
        FolderError: files are missing, out of date or belong to nothing.
    """

    def __init__(self, manifest: Manifest, files: FolderFiles) -> None:
        self._manifest = manifest
        self._files = files
        self._paths: dict[int, tuple[str, ...]] = {}
        parts_of = assets_by_file(manifest)
        for index, file in kept_files(manifest):
            # A file that was written whole has no parts in the folder.
            parts = () if file.path in files.others else in_order(parts_of.get(index, {}))
            self._paths[index] = tuple(f"{file.path}/{name}" for name in parts) or (file.path,)
        self._refuse()
        self.assets: dict[tuple[int, str], tuple[int, int]] = {}
        self._contents = {index: self._content(index) for index in self._paths}

    def changed(self) -> tuple[str, ...]:
        """The paths of modules and of code for devices with other bytes than those in the manifest."""
        listed = {index: self._manifest.files[index] for index in self._contents}
        return tuple(
            file.path
            for index, file in listed.items()
            if file.path.startswith("modules/") and hashlib.sha256(self._contents[index]).hexdigest() != file.sha256
        )

    def sources(self, first: int, *, goldens: bool) -> tuple[dict[int, int], list[FileSource]]:
        """The files to pack, and their numbers by those in the manifest, from `first` on."""
        numbers: dict[int, int] = {}
        found: list[FileSource] = []
        for index, file in enumerate(self._manifest.files):
            if file.path == SOURCES_PATH:
                content = encode_sources(self._files.sources)
            elif index in self._contents and (goldens or not file.path.startswith("goldens/")):
                content = self._contents[index]
            else:
                continue
            numbers[index] = first + len(found)
            found.append(FileSource.from_bytes(file.path, content))
        return numbers, found

    def _refuse(self) -> None:
        wanted = {path for paths in self._paths.values() for path in paths}
        problems = [f"{path} is missing{_build(path)}" for path in sorted(wanted - self._files.others)]
        problems += [f"{path} is not in the manifest" for path in sorted(self._files.others - wanted)]
        modules = [path for path in sorted(wanted & self._files.others) if path.endswith(".so")]
        problems += stale(self._files, modules)
        for path in modules:
            code = (self._files.folder / path).read_bytes()
            if not code.startswith(b"\x7fELF") or _MODULE not in code:
                problems.append(f"{path} is not a module: it has no function aotpack_module_query")
        refuse(self._files.folder, problems)

    def _content(self, index: int) -> bytes:
        """The bytes of a file; notes where its parts are."""
        path = self._manifest.files[index].path
        read = {part: (self._files.folder / part).read_bytes() for part in self._paths[index]}
        if path in read:
            return read[path]
        parts = {part.removeprefix(f"{path}/"): content for part, content in read.items()}
        data, offsets = joined_assets(parts)
        for name, offset in offsets.items():
            self.assets[index, name] = offset, len(parts[name])
        return data


def _build(path: str) -> str:
    return ": build it first" if path.endswith(".so") else ""
