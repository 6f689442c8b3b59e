"""The sources of modules as the files of a folder that CMake builds, with all headers but the compiler's.

src/<target>/<module>/  generated C++, and the graph that it computes
aotpack/                sources and headers of aotpack
custom/                 sources and headers of the user's kernels
<name>/                 headers of others, such as torch's
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from aotpack.building import native_sources
from aotpack.building.cmake_text import CMakeModule, CMakeObject, cmake_text
from aotpack.building.includes import include_folders_of, included_headers
from aotpack.building.module_sources import EXPORT_MAP, ModuleSources, SourceUnit

_GENERATED = "src"
_CUSTOM = "custom"
# Flags for the folder of the build machine that a header was in.
_PREFIX_MAP = "-ffile-prefix-map="


def source_tree(name: str, modules: Mapping[str, ModuleSources]) -> dict[str, bytes]:
    """The files by their paths.

    Args:
        name: of the model.
        modules: by the path of the shared object in the folder, `modules/<target>/<module>.so`.

    Raises:
        OSError: a source or a header cannot be read.
    """
    places = _Places.of(modules.values())
    files: dict[str, bytes] = {"exports.map": EXPORT_MAP.encode()}
    listed = []
    for path, module in modules.items():
        folder = f"{_GENERATED}/{path.removeprefix('modules/').removesuffix('.so')}"
        objects = [_object(unit, folder, files, places) for unit in module.units]
        given = []
        for file in module.objects:
            place = _free(f"{_CUSTOM}/objects/{file.name}", file.read_bytes(), files)
            given.append(place)
        for title, text in module.texts.items():
            files[f"{folder}/{title}"] = text.encode()
        listed.append(CMakeModule(path, tuple(objects), module.link_flags, tuple(given)))
    for file, place in places.files.items():
        files[place] = file.read_bytes()
    files["CMakeLists.txt"] = cmake_text(name, listed).encode()
    return files


def _object(unit: SourceUnit, folder: str, files: dict[str, bytes], places: _Places) -> CMakeObject:
    """How CMake compiles a unit; adds its text to the files."""
    flags = places.flags(unit.flags)
    if unit.text is None:
        if unit.path is None:
            raise ValueError(f"{unit.name} has neither a text nor a path")
        return CMakeObject(places.files[unit.path.resolve()], flags)
    text = places.text(unit.text)
    path = _free(f"{folder}/{unit.name}", text.encode(), files)
    # What the text includes of the user is named from the top of the folder.
    return CMakeObject(path, flags if text == unit.text else (*flags, "-I", "${ROOT}"))


def _free(path: str, content: bytes, files: dict[str, bytes]) -> str:
    """Adds a file at `path`, with a number where another one is there."""
    stem, dot, extension = path.rpartition(".")
    names = chain([path], (f"{stem}.{number}{dot}{extension}" for number in range(2, 10_000)))
    place = next(name for name in names if files.get(name, content) == content)
    files[place] = content
    return place


@dataclass(frozen=True)
class _Places:
    """Where files and folders of the build machine are in the tree; `folders` has the longest paths first."""

    folders: tuple[tuple[Path, str], ...]
    files: Mapping[Path, str]

    @staticmethod
    def of(modules: Iterable[ModuleSources]) -> _Places:
        given = list(modules)
        roots = {native_sources.source_root(): "aotpack"}
        for module in given:
            roots.update({root.resolve(): name for name, root in module.roots.items()})
        needed: set[Path] = set()
        searched: dict[Path, None] = {}
        for unit in chain.from_iterable(module.units for module in given):
            folders = include_folders_of(unit.flags)
            searched.update(dict.fromkeys(folder.resolve() for folder in folders))
            if unit.path is not None:
                needed.add(unit.path.resolve())
            text = unit.text if unit.path is None else unit.path.read_text()
            beside = None if unit.path is None else unit.path.resolve().parent
            needed |= included_headers([(text or "", beside)], folders)
        roots.update(_custom_roots([file for file in needed if _root(file, roots) is None], list(searched)))
        longest_first = tuple(sorted(roots.items(), key=lambda item: -len(item[0].parts)))
        places = _Places(longest_first, {})
        return _Places(longest_first, {file: places.place(file) for file in sorted(needed)})

    def place(self, path: Path) -> str:
        """Where a path below one of the folders is in the tree."""
        root = next(root for root, _ in self.folders if path.is_relative_to(root))
        return str(PurePosixPath(dict(self.folders)[root], *path.relative_to(root).parts))

    def text(self, text: str) -> str:
        """A text with paths of the user's files as they are in the tree."""
        for root, name in self.folders:
            if name.partition("/")[0] == _CUSTOM:
                text = text.replace(f'#include "{root}/', f'#include "{name}/')
        return text

    def flags(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Flags with folders as they are in the tree; without those of folders of which nothing is needed."""
        used = {str(parent) for place in self.files.values() for parent in PurePosixPath(place).parents}
        found: list[str] = []
        rest = iter(flags)
        for flag in rest:
            if flag.startswith(_PREFIX_MAP):
                continue
            option, folder = (flag, next(rest)) if flag in ("-I", "-isystem") else ("-I", flag[2:])
            if not flag.startswith(("-I", "-isystem")):
                found.append(flag)
                continue
            path = Path(folder).resolve()
            if any(path.is_relative_to(root) for root, _ in self.folders) and (place := self.place(path)) in used:
                found += [option, f"${{ROOT}}/{place}"]
        # Messages name files from the top of the folder.
        return (*found, f"{_PREFIX_MAP}${{ROOT}}/=")


def _root(path: Path, roots: Mapping[Path, str]) -> Path | None:
    return next((root for root in roots if path.is_relative_to(root)), None)


def _custom_roots(files: Sequence[Path], searched: Sequence[Path]) -> dict[Path, str]:
    """Folders that contain all of the user's files: the one that they have in common, and folders of headers."""
    if not files:
        return {}
    inside = {folder: [file for file in files if file.is_relative_to(folder)] for folder in searched}
    others = [file for file in files if not any(file in found for found in inside.values())]
    roots = {Path(os.path.commonpath([file.parent for file in others])): _CUSTOM} if others else {}
    for folder, found in sorted(inside.items(), key=lambda item: len(item[0].parts)):
        if found and _root(folder, roots) is None:
            name = re.sub(r"[^A-Za-z0-9._-]", "-", folder.name) or "include"
            taken = roots.values()
            names = (f"{_CUSTOM}/{name}{'' if number == 1 else f'-{number}'}" for number in range(1, 10_000))
            roots[folder] = next(path for path in names if path not in taken)
    return roots
