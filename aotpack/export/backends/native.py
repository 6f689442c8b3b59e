"""Compiler calls of a backend: sources become objects, in parallel and with the build cache, and one shared object."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aotpack.building.cache import BuildCache, digest_of
from aotpack.building.compiler import Compiler
from aotpack.building.module_sources import EXPORT_MAP, SourceUnit
from aotpack.building.objects import Made
from aotpack.building.temporary import private_folder
from aotpack.building.waiting import WaitingCompiler
from aotpack.errors import CompileError
from aotpack.export.backends.precompiled import Precompiled, compiled_by, include_flags, missed


@dataclass(frozen=True)
class Unit:
    """One compiler call: a source text or file, its flags, what it includes at its top, what to do when it fails.

    `otherwise` are flags to add where the compiler fails without them. `made` is its object where it has been compiled
    already. `cost` is how long it compiles, in characters of kernels: the longest units begin first.
    """

    name: str
    flags: tuple[str, ...]
    key: str
    text: str | None = None
    path: Path | None = None
    header: Precompiled | None = None
    hint: str | None = None
    otherwise: tuple[str, ...] = ()
    made: Made | None = None
    cost: int = 0

    @property
    def source(self) -> SourceUnit:
        """What is compiled, without what builds know of it."""
        return SourceUnit(self.name, self.flags, self.text, self.path)


def build_units(
    units: Sequence[Unit],
    compiler: Compiler,
    cache: BuildCache,
    *,
    link_flags: Sequence[str],
    given: Sequence[Path] = (),
    waiting: Sequence[WaitingCompiler] = (),
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> bytes:
    """The shared object of `units` and the object files `given`, stripped, with one exported symbol.

    Raises:
        CompileError: the compiler failed; the message has its first errors.
    """

    def build(unit: Unit) -> bytes:
        if unit.made is not None:
            content = unit.made.path.read_bytes()
        else:
            content = cache.content(unit.key, ".o", partial(_compile_with_header, compiler, unit, cache, waiting))
        if progress is not None:
            progress(unit.name)
        return content

    objects = _all_or_none(build, units, compiler, jobs or len(os.sched_getaffinity(0)))
    key = digest_of(
        ["link", compiler.identity, EXPORT_MAP, *link_flags, *(u.key for u in units), *map(_file_digest, given)]
    )
    return cache.content(key, ".so", lambda output: _link(compiler, objects, given, link_flags, output))


def _all_or_none(build: Callable[[Unit], bytes], units: Sequence[Unit], compiler: Compiler, jobs: int) -> list[bytes]:
    """Builds the units in parallel. When one fails, or on Ctrl-C, the other compilers are killed."""
    pool = ThreadPoolExecutor(jobs)
    try:
        # A long one that begins last runs alone at the end.
        order = sorted(range(len(units)), key=lambda i: -units[i].cost)
        begun = {i: pool.submit(build, units[i]) for i in order}
        return [begun[i].result() for i in range(len(units))]
    except BaseException:
        if compiler.group is not None:
            compiler.group.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile_with_header(
    compiler: Compiler, unit: Unit, cache: BuildCache, waiting: Sequence[WaitingCompiler], output: Path
) -> None:
    include = include_flags(unit.header, cache) if unit.header is not None else ()
    if unit.header is not None and unit.text is not None and not include:
        missed(unit.header, cache)
        content = compiled_by(waiting, unit.header, unit.name, unit.text)
        if content is not None:
            output.write_bytes(content)
            return
    if include:
        try:
            return compile_unit(compiler, replace(unit, flags=(*unit.flags, *include)), output)
        except CompileError:
            # Perhaps the compiler cannot use the file here. If not that, then this says what it is.
            pass
    try:
        compile_unit(compiler, unit, output)
    except CompileError:
        if not unit.otherwise:
            raise
        compile_unit(compiler, replace(unit, flags=(*unit.flags, *unit.otherwise)), output)


def compile_unit(compiler: Compiler, unit: Unit, output: Path) -> None:
    """Runs the compiler for one unit, without a precompiled header."""
    with private_folder() as folder:
        source = unit.name if unit.path is None else str(unit.path)
        if unit.text is not None:
            (folder / unit.name).write_text(unit.text)
        _run(compiler, [*unit.flags, "-c", source, "-o", str(output)], folder, f"compiling {unit.name}", unit.hint)


def _link(
    compiler: Compiler, objects: Sequence[bytes], given: Sequence[Path], link_flags: Sequence[str], output: Path
) -> None:
    with private_folder() as folder:
        export_map = folder / "exports.map"
        export_map.write_text(EXPORT_MAP)
        # The bytes that were checked: the cache may change meanwhile.
        inputs = [folder / f"{i}.o" for i in range(len(objects))]
        for path, content in zip(inputs, objects, strict=True):
            path.write_bytes(content)
        script = f"-Wl,--version-script={export_map}"
        flags = [*map(str, [*inputs, *given]), *link_flags, script, "-o", str(output)]
        _run(compiler, flags, folder, "linking the module")


_SAYS_WHY = re.compile(r"\berror\b|undefined|multiple definition|cannot find|not recognized")
_UNDEFINED = re.compile(r"undefined reference to [`'](.+)'|undefined symbol: (.+)")


def _run(compiler: Compiler, arguments: list[str], folder: Path, what: str, hint: str | None = None) -> None:
    result = compiler.run(arguments, cwd=folder)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if _SAYS_WHY.search(line)]
        shown = "\n".join((errors or result.stderr.splitlines())[:8])
        undefined = sorted({first or second for first, second in _UNDEFINED.findall(result.stderr)})
        if undefined:
            raise CompileError(
                f"{what} failed: undefined symbol {', '.join(undefined[:8])}",
                hint="an archive contains all of its code: pass custom_kernel the sources, objects or static archives "
                "(.a) that define it",
            )
        raise CompileError(
            f"{what} failed:\n{shown}", hint=hint or f"the command was: {' '.join(compiler.command)} … ({what})"
        )
