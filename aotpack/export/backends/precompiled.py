"""Precompiled headers. Generated code includes torch's vector library, and parsing that takes longer than to compile
most kernels.

They only save time: an object is the same without, as long as the header has nothing that a source does not include
itself (c10's element types, say, bring a constructor of iostream's along). So no build waits for them. To precompile
one takes three times as long as to read it, and 50 to 150 MB in the build cache. Builds that compile a source without
one leave a note there; once two have, the next makes it in the background. So who builds the same code again does not
pay for it. As long as they are missing, compilers read the headers while code is generated, and wait for it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aotpack.building import native_sources
from aotpack.building.cache import BuildCache, digest_of
from aotpack.building.compiler import Compiler
from aotpack.building.temporary import private_folder
from aotpack.building.waiting import WaitingCompiler
from aotpack.errors import BuildError

_HEADER, _COMPILED = ".h", ".h.gch"
# Notes of the first build that had to do without, and of the second.
_MISSED, _WANTED = ".missed", ".wanted"


@dataclass(frozen=True)
class Precompiled:
    """A line that all sources with these `flags` include. `key` is its name in the build cache.

    `source` is what the first of them is called.
    """

    source: str
    line: str
    flags: tuple[str, ...]
    key: str


def precompiled(source: str, line: str, flags: Iterable[str], compiler: Compiler) -> Precompiled | None:
    """The header that includes by `line`. None for clang: its own depend on files' times."""
    if compiler.is_clang:
        return None
    # With the folders in `flags`: nothing checks later whether the headers in them are still the same.
    key = digest_of(
        [*compiler.command, compiler.version, torch.__version__, native_sources.headers_hash(), line, *flags]
    )
    return Precompiled(source, line, tuple(flags), key)


def include_flags(header: Precompiled, cache: BuildCache) -> tuple[str, ...]:
    """For the compiler, where `header` has been compiled and is whole; else none."""
    text, compiled = cache.find(header.key, _HEADER), cache.find(header.key, _COMPILED)
    return ("-include", str(text)) if text and compiled else ()


@contextlib.contextmanager
def compilers_waiting(
    headers: Iterable[Precompiled], cache: BuildCache, compiler: Compiler
) -> Iterator[tuple[WaitingCompiler, ...]]:
    """Compilers that read the headers meanwhile, of those that are not compiled."""
    with contextlib.ExitStack() as stack:
        absent = [each for each in headers if not cache.path(each.key, _COMPILED).exists()] if compiler.can_wait else []
        yield tuple(
            stack.enter_context(WaitingCompiler(compiler, each.flags, each.source, each.line)) for each in absent
        )


def compiled_by(waiting: Iterable[WaitingCompiler], header: Precompiled, name: str, text: str) -> bytes | None:
    """The object of the source `name`, where one of the compilers waits for it."""
    wanted = (name, header.flags, header.line)
    made = (each.compile(text) for each in waiting if (each.name, each.flags, each.line) == wanted)
    return next((content for content in made if content is not None), None)


@contextlib.contextmanager
def in_background() -> Iterator[Executor]:
    """One thread, for what a build can compile while code generation keeps one core busy."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool
    finally:
        # The one that is being compiled goes on; a process that needs it waits at its lock.
        pool.shutdown(wait=False, cancel_futures=True)


def compile_ahead(headers: Iterable[Precompiled], cache: BuildCache, compiler: Compiler, pool: Executor) -> None:
    """Compiles those headers in `pool` that two builds have missed."""
    for header in headers:
        if cache.find(header.key, _WANTED) is not None:
            # There, comparing the header with its hash delays nothing.
            pool.submit(_compile, header, cache, compiler)


def missed(header: Precompiled, cache: BuildCache) -> None:
    """Leaves a note that a build, whose cache this is, compiles sources without the header."""
    if header.key not in cache.missed:
        cache.missed.add(header.key)
        cache.aside(header.key, _MISSED if cache.find(header.key, _MISSED) is None else _WANTED, Path.touch)


def _compile(header: Precompiled, cache: BuildCache, compiler: Compiler) -> None:
    text = cache.aside(header.key, _HEADER, lambda path: _write(path, header.line))

    def make(output: Path) -> None:
        with private_folder() as folder:
            done = _unhurried(compiler).run(
                [*header.flags, "-x", "c++-header", str(text), "-o", str(output)], cwd=folder
            )
        if done.returncode != 0:
            raise BuildError("the compiler does not precompile headers")

    # Nothing is lost but time.
    with contextlib.suppress(BuildError, OSError):
        cache.aside(header.key, _COMPILED, make)


def _unhurried(compiler: Compiler) -> Compiler:
    """The compiler at the lowest priority: the build that runs meanwhile is for its user, the header for later ones."""
    nice = shutil.which("nice")
    return compiler if nice is None else replace(compiler, path=nice, arguments=("-n", "19", *compiler.command))


def _write(path: Path, line: str) -> None:
    path.write_text(line + "\n")
