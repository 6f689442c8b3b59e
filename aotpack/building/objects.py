"""Objects of our own C++ sources that come with the package: the first build on a machine need not compile them.

    python -m aotpack.building.objects FOLDER [--compiler COMMAND] [--target TARGET]...

compiles them into a folder; CMake does so when it makes a wheel. Needs no torch: sources that include its headers are
compiled by the builds themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from aotpack.building import flags, native_sources
from aotpack.building.cache import digest_of
from aotpack.building.compiler import Compiler, find_compiler
from aotpack.building.temporary import private_folder
from aotpack.errors import CompileError
from aotpack.targets import BY_NAME

_INDEX = "compiler.json"
# What there is beside it; other files in the folder are left alone.
_OURS = re.compile(r"[0-9a-f]{64}\.(o|partial)")

# What most hosts are. Objects for others would make the package larger for few, and some need another compiler. Of the
# last two, few differ from those of x86-64-v4: kernels for bf16.
_TARGETS = ("x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-v4-amx")

# A model has one half precision, if any; what has both is compiled by its build.
_HALVES = (frozenset[str](), frozenset(["bf16"]), frozenset(["f16"]))


def packaged() -> Path:
    """Where the package has them. The folder is missing where it was installed without."""
    return Path(__file__).resolve().parent.parent / "_objects"


def key_of(source: Path, compiled_with: Sequence[str]) -> str:
    """What decides the object of one of our sources, but for the compiler."""
    name = str(source.relative_to(native_sources.source_root()))
    return digest_of([*flags.portable(compiled_with), name, native_sources.content_hash(source)])


@dataclass(frozen=True)
class Made:
    """An object, and the version of the compiler that it is from."""

    path: Path
    compiler: str


def find(key: str, compiler: Compiler, folder: Path | None = None) -> Made | None:
    """The object in `folder` (default: the package's), if a module that `compiler` links can contain it.

    Only a GCC that is at least as new as the one that compiled it has the libraries for that, and only without flags
    of the user's own is it what this one would compile.
    """
    folder = folder or packaged()
    index = _index(folder)
    if index is None or compiler.is_clang or compiler.identity != compiler.version:
        return None
    path = folder / f"{key}.o"
    return Made(path, index["compiler"]) if path.is_file() and _major(compiler) >= index["major"] else None


def compile_objects(folder: Path, sources: Iterable[Path], targets: Sequence[str], compiler: Compiler) -> int:
    """Compiles `sources` for each target, with each half precision and with none.

    Returns:
        How many objects there are.

    Raises:
        CompileError: the compiler is clang, or it failed; the message has its output.
    """
    if compiler.is_clang:
        raise CompileError("objects are compiled by GCC: modules that clang links do not contain them")
    folder, items = folder.resolve(), wanted(sources, targets)
    folder.mkdir(parents=True, exist_ok=True)
    index = _index(folder)
    kept = set(items) if index is not None and index["compiler"] == compiler.version else set()
    (folder / _INDEX).unlink(missing_ok=True)
    _index.cache_clear()
    for path in list(folder.iterdir()):
        if _OURS.fullmatch(path.name) and (path.suffix != ".o" or path.stem not in kept):
            path.unlink()
    missing = [item for key, item in items.items() if not (folder / f"{key}.o").is_file()]
    # The longest first, so that none of them runs alone at the end.
    missing.sort(key=lambda item: -item.source.stat().st_size)
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        list(pool.map(lambda item: item.compile(folder, compiler), missing))
    finally:
        # Where one has failed, the others need not begin.
        pool.shutdown(cancel_futures=True)
    (folder / _INDEX).write_text(json.dumps({"compiler": compiler.version, "major": _major(compiler)}) + "\n")
    return len(items)


def compilable(targets: Iterable[str], compiler: Compiler) -> tuple[str, ...]:
    """Those of `targets` whose instructions the compiler knows."""
    found = []
    with private_folder() as folder:
        (folder / "empty.cpp").touch()
        for target in targets:
            extensions = [flag for each in BY_NAME[target].extensions for flag in each.flags]
            command = [*flags.target_flags(target), *extensions, "-c", "empty.cpp", "-o", "empty.o"]
            if compiler.run(command, cwd=folder).returncode == 0:
                found.append(target)
    return tuple(found)


@dataclass(frozen=True)
class Wanted:
    """A call of the compiler, and the key of its object."""

    key: str
    source: Path
    flags: tuple[str, ...]

    def compile(self, folder: Path, compiler: Compiler) -> None:
        partial = folder / f"{self.key}.partial"
        done = compiler.run([*self.flags, "-c", str(self.source), "-o", str(partial)], cwd=folder)
        if done.returncode != 0:
            raise CompileError(f"{self.source.name} cannot be compiled:\n{done.stderr}")
        partial.replace(folder / f"{self.key}.o")


def wanted(sources: Iterable[Path], targets: Sequence[str]) -> dict[str, Wanted]:
    """What there is to compile, by the keys of the objects."""
    found = {}
    for source in sources:
        if flags.includes_torch(source):
            continue
        for target in targets:
            for halves in _HALVES:
                level = flags.optimization(source)
                own = tuple(flags.library_flags(target, halves=halves, optimize=level, source=source))
                key = key_of(source, own)
                found[key] = Wanted(key, source, own)
    return found


@lru_cache(maxsize=8)
def _index(folder: Path) -> dict[str, Any] | None:
    """Which GCC compiled what is in `folder`; None if there is nothing."""
    try:
        return cast("dict[str, Any]", json.loads((folder / _INDEX).read_text()))
    except FileNotFoundError:
        return None


@lru_cache(maxsize=8)
def _major(compiler: Compiler) -> int:
    done = subprocess.run([*compiler.command, "-dumpversion"], capture_output=True, text=True, check=True)
    return int(done.stdout.split(".")[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m aotpack.building.objects", description=compile_objects.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compiler", help="a command; default: $CXX, else the first of g++ and c++ on the path")
    parser.add_argument("--target", action="append", choices=flags.compile_targets(), help="default: most hosts' own")
    arguments = parser.parse_args()
    sources = native_sources.sources_for(native_sources.operator_groups())
    sources += [native_sources.probe_source()]
    try:
        compiler = find_compiler(arguments.compiler)
        targets = arguments.target or compilable(_TARGETS, compiler)
        count = compile_objects(arguments.folder, sources, targets, compiler)
    except CompileError as error:
        sys.exit(f"error: {error}")
    print(f"{count} objects for {', '.join(targets)}")


if __name__ == "__main__":
    main()
