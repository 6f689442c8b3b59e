"""The files of a folder that was unpacked: which of them are sources, what changed, and whether modules are current."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive.files import kind_of
from aotpack.archive.sources import source_path_problem
from aotpack.errors import FolderError
from aotpack.runtime.packing.folder_layout import CHECKSUMS, KEPT, MANIFEST, README, WEIGHTS

_OWN = {MANIFEST, README, CHECKSUMS, WEIGHTS}
# Files beside the sources that no compiler reads.
_TO_READ = (".txt", ".md")


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder.

    Attributes:
        folder: the folder.
        sources: all sources, by path.
        changed: the paths of those that are new or differ from what was unpacked.
        others: the paths of the files below modules/, goldens/, reports/ and tuning/.
    """

    folder: Path
    sources: Mapping[str, bytes]
    changed: frozenset[str]
    others: frozenset[str]

    def modified(self, path: str) -> int:
        """When a file was modified, in nanoseconds."""
        return os.stat(self.folder / path).st_mtime_ns


def read_folder(folder: Path) -> FolderFiles:
    """The files of an unpacked archive.

    Raises:
        FolderError: this is no such folder, a source is missing, or there are files that belong to nothing. All of them
            are listed.
        OSError: a file cannot be read.
    """
    checksums = _checksums(folder)
    tops = {path.partition("/")[0] for path in checksums if "/" in path} | {"src", "custom"}
    problems: list[str] = []
    sources: dict[str, bytes] = {}
    others: set[str] = set()
    for path, mode in _walk(folder):
        if path in _OWN:
            continue
        if not stat.S_ISREG(mode):
            problems.append(f"{path} is {'a link' if stat.S_ISLNK(mode) else kind_of(mode)}, not a file")
        elif path.startswith(KEPT):
            others.add(path)
        elif path in checksums or path.partition("/")[0] in tops:
            problem = source_path_problem(path)
            if problem is not None:
                problems.append(problem)
            sources[path] = (folder / path).read_bytes()
        else:
            problems.append(f"{path} belongs to nothing: move it below src/, or out of the folder")
    problems += [
        f"{path} is missing: restore it, or remove its line in {CHECKSUMS}" for path in checksums if path not in sources
    ]
    refuse(folder, problems)
    changed = {path for path, content in sources.items() if hashlib.sha256(content).hexdigest() != checksums.get(path)}
    return FolderFiles(folder, sources, frozenset(changed), frozenset(others))


def stale(files: FolderFiles, modules: Sequence[str]) -> list[str]:
    """What is wrong with modules that were not built after a source was changed."""
    built = {module: files.modified(module) for module in modules}
    problems = []
    for path in sorted(files.changed):
        if path.endswith(_TO_READ):
            continue
        if path.endswith(".ptx"):
            problems.append(f"{path} was changed, but is only there to be read: kernels are the .cubin files")
            continue
        own = [module for module in modules if path.startswith(f"src/{_stem(module)}/")]
        changed_at = files.modified(path)
        if own and built[own[0]] < changed_at:
            problems.append(f"{path} was changed, but {own[0]} is older: build it first")
        elif not own and all(time < changed_at for time in built.values()):
            problems.append(f"{path} was changed, but all modules are older: build them first")
    return problems


def refuse(folder: Path, problems: Sequence[str]) -> None:
    """Raises FolderError if there are problems."""
    if problems:
        shown = [*problems[:10], *([f"… and {len(problems) - 10} more"] if len(problems) > 10 else [])]
        build = any("build" in problem for problem in shown)
        raise FolderError(
            f"{folder} cannot be packed:" + "".join(f"\n  {problem}" for problem in shown),
            hint=f"cmake -B {folder}/build -S {folder} && cmake --build {folder}/build -j$(nproc)" if build else None,
        )


def _stem(module: str) -> str:
    return module.removeprefix("modules/").removesuffix(".so")


def _checksums(folder: Path) -> dict[str, str]:
    try:
        value = json.loads((folder / CHECKSUMS).read_bytes())
    except FileNotFoundError:
        raise FolderError(
            f"{folder} is not the folder of an unpacked archive: it has no {CHECKSUMS}",
            hint="`aotpack unpack ARCHIVE -o FOLDER` makes one",
        ) from None
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{folder / CHECKSUMS} is not valid JSON: {error}") from error
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise FolderError(f"{folder / CHECKSUMS} should be an object of paths and hashes")
    return value


def _walk(folder: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The files with their modes, without hidden ones and what CMake builds in."""
    with os.scandir(folder / prefix) as found:
        items = sorted(found, key=lambda item: item.name)
    for item in items:
        path = prefix + item.name
        if item.name.startswith("."):
            continue
        if item.is_dir(follow_symlinks=False):
            if not os.path.exists(folder / path / "CMakeCache.txt"):
                yield from _walk(folder, f"{path}/")
        else:
            yield path, item.stat(follow_symlinks=False).st_mode
