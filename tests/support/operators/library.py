"""Libraries of operators for tests: each source is compiled once a run, whoever needs it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotpack.building import native_sources
from aotpack.building.cache import BuildCache
from aotpack.building.flags import portable
from aotpack.building.temporary import private_folder
from aotpack.export.backends.cpu import toolchain


def link_library(
    cache: BuildCache,
    output: Path,
    driver: Path,
    functions: Iterable[str],
    flags_for: Callable[[Path], Sequence[str]],
) -> Path:
    """A library of these C functions and of all that they need, with a driver that Python calls.

    Args:
        cache: where objects come from and go to; tests of one run share it (the fixture `cache_dir`).
        output: where the library goes.
        driver: C++ that includes call.h.
        functions: `aoti_torch_…`, as csrc/module/declare has them.
        flags_for: the compiler's flags for a source; those of the driver link the library too.
    """
    compiler = toolchain.find_compiler()

    def build(source: Path) -> bytes:
        flags = list(flags_for(source))
        digest = hashlib.sha256("\0".join([compiler.version, *portable(flags), source.name]).encode())
        digest.update(native_sources.content_hash(source).encode())

        def run(to: Path) -> None:
            _run([*compiler.command, *flags, "-c", str(source), "-o", str(to)])

        return cache.content(digest.hexdigest(), ".o", run)

    # The longest first, so that none runs alone at the end.
    # Threads are OpenMP's: there is no runtime whose team they could be.
    ours = [source for source in native_sources.sources_for(functions) if source.name != "openmp.cpp"]
    sources = sorted([driver, *ours], key=_length, reverse=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(build, sources))
    with private_folder() as folder:
        # The bytes that were checked: the cache may change meanwhile.
        inputs = [folder / f"{i}.o" for i in range(len(objects))]
        for path, content in zip(inputs, objects, strict=True):
            path.write_bytes(content)
        _run([*compiler.command, *flags_for(driver), "-shared", *map(str, inputs), "-o", str(output)])
    return output


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stderr}"


def _length(source: Path) -> int:
    return sum(path.stat().st_size for path in [source, *native_sources.local_includes(source)])
