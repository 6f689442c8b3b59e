"""Compiling: sources of a module become one stripped shared object, in parallel and with the build cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from aotpack.building import native_sources
from aotpack.building.cache import BuildCache, digest_of
from aotpack.building.processes import ProcessGroup
from aotpack.building.temporary import private_folder
from aotpack.errors import CompileError
from aotpack.export.backends.cpu import custom_units, kernel_source, toolchain, wrapper_source
from aotpack.export.backends.cpu.lower import Lowered
from aotpack.export.backends.cpu.precompiled import Precompiled, compile_ahead, include_flags, precompiled
from aotpack.export.backends.cpu.toolchain import Compiler

_EXPORT_MAP = "{ global: aotpack_module_query; local: *; };\n"

# Beyond this, optimising the wrapper costs minutes and gains nothing: its work is calls.
_WRAPPER_O0 = 400_000


@dataclass(frozen=True)
class _Unit:
    """One compiler call: a source text or file, its flags, what it includes at its top, what to do when it fails."""

    name: str
    flags: tuple[str, ...]
    key: str
    text: str | None = None
    path: Path | None = None
    header: Precompiled | None = None
    hint: str | None = None


def compile_module(
    lowered: Lowered,
    cache: BuildCache,
    *,
    compiler: Compiler | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> bytes:
    """The module's shared object.

    Args:
        lowered: its sources.
        cache: where objects come from and go to.
        compiler: by default the one that `find_compiler` finds.
        jobs: compiler processes at a time; by default one per core.
        progress: called with the name of each source after it compiles.

    Raises:
        CompileError: the compiler failed; the message has its first errors.
    """
    compiler = compiler or toolchain.find_compiler()
    if compiler.group is None:
        compiler = compiler.within(ProcessGroup())
    units = _units(lowered, compiler)
    given = custom_units.objects(lowered.custom, lowered.target)

    def build(unit: _Unit) -> bytes:
        content = cache.content(unit.key, ".o", partial(_compile_with_header, compiler, unit, cache))
        if progress is not None:
            progress(unit.name)
        return content

    objects = _all_or_none(build, units, compiler, jobs or len(os.sched_getaffinity(0)))
    key = digest_of(["link", compiler.identity, _EXPORT_MAP, *(unit.key for unit in units), *map(_file_digest, given)])
    return cache.content(key, ".so", lambda output: _link(compiler, objects, given, output))


def _all_or_none(build: Callable[[_Unit], bytes], units: Sequence[_Unit], compiler: Compiler, jobs: int) -> list[bytes]:
    """Builds the units in parallel. When one fails, or on Ctrl-C, the other compilers are killed."""
    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(build, units))
    except BaseException:
        if compiler.group is not None:
            compiler.group.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def kernels_ahead(
    shims: Iterable[str], targets: Sequence[str], cache: BuildCache, *, compiler: Compiler, halves: frozenset[str]
) -> Iterator[None]:
    """Compiles our kernels for `shims`, and headers, into the cache in the background, while code generation keeps one
    core busy.
    """
    pool = ThreadPoolExecutor(1)
    try:
        for target in targets:
            for unit in _library_units(target, shims, compiler, halves=halves):
                # What fails here fails again, and is reported, when the module is compiled.
                pool.submit(cache.get, unit.key, ".o", partial(_compile, compiler, unit))
            headers = (_kernel_header(target, compiler), _wrapper_header(target, compiler))
            compile_ahead(headers, cache, compiler, pool)
        yield
    finally:
        # The one that is being compiled goes on; a process that needs it waits at its lock.
        pool.shutdown(wait=False, cancel_futures=True)


def _units(lowered: Lowered, compiler: Compiler) -> list[_Unit]:
    target = lowered.target
    small = len(lowered.wrapper) <= _WRAPPER_O0
    wrapper_flags = _wrapper_flags(target) if small else tuple(toolchain.generated_flags(target, optimize="-O0"))
    kernel_flags = _kernel_flags(target)
    kernel_header = _kernel_header(target, compiler)
    common = [compiler.identity, native_sources.headers_hash(), torch.__version__]
    declared = native_sources.headers_hash(frozenset(native_sources.groups_of(lowered.shims)))
    units = [
        # The longest first, so that it does not run alone at the end.
        *(
            _Unit(
                f"kernels{i}.cpp",
                kernel_flags,
                digest_of([*common, *_portable(kernel_flags), text]),
                text=text,
                header=kernel_header,
            )
            for i, text in sorted(enumerate(lowered.units), key=lambda item: -len(item[1]))
        ),
        _Unit(
            "wrapper.cpp",
            wrapper_flags,
            digest_of([*common, declared, *_portable(wrapper_flags), lowered.wrapper]),
            text=lowered.wrapper,
            header=_wrapper_header(target, compiler) if small else None,
        ),
    ]
    units += _library_units(target, lowered.shims, compiler, halves=lowered.halves, custom=bool(lowered.custom))
    return [*units, *(_custom_unit(unit, compiler) for unit in custom_units.units(lowered.custom, target))]


def _kernel_flags(target: str) -> tuple[str, ...]:
    return tuple(toolchain.generated_flags(target, optimize="-O3"))


def _wrapper_flags(target: str) -> tuple[str, ...]:
    return tuple(toolchain.generated_flags(target, optimize="-O1"))


def _kernel_header(target: str, compiler: Compiler) -> Precompiled | None:
    return precompiled(kernel_source.PREFIX, _kernel_flags(target), compiler)


def _wrapper_header(target: str, compiler: Compiler) -> Precompiled | None:
    return precompiled(wrapper_source.DEVICE_HEADER, _wrapper_flags(target), compiler)


def _custom_unit(unit: custom_units.CustomUnit, compiler: Compiler) -> _Unit:
    """A source of the user, known by its text with everything that it includes."""
    found = _Unit(unit.name, unit.flags, "", text=unit.text, hint=unit.advice)
    with private_folder() as folder:
        preprocessed = folder / "preprocessed"
        _compile(compiler, replace(found, flags=(*unit.flags, "-E", "-P")), preprocessed)
        return replace(found, key=digest_of([compiler.identity, *_portable(unit.flags), preprocessed.read_text()]))


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _library_units(
    target: str, shims: Iterable[str], compiler: Compiler, *, halves: frozenset[str], custom: bool = False
) -> list[_Unit]:
    kernels = native_sources.source_root() / "kernels"
    units = []
    for source in [
        *native_sources.sources_for(shims),
        *([native_sources.module_folder() / "custom.cpp"] if custom else []),
    ]:
        name = str(source.relative_to(native_sources.source_root()))
        # Outside the kernels little time is spent: -O3 would cost more to build than it gains.
        optimize = "-O3" if kernels in source.parents else "-O2"
        flags = tuple(toolchain.library_flags(target, halves=halves, optimize=optimize))
        key = digest_of([compiler.identity, *_portable(flags), name, native_sources.content_hash(source)])
        units.append(_Unit(name, flags, key, path=source))
    # The longest first, so that it does not run alone at the end.
    return sorted(units, key=lambda unit: -unit.path.stat().st_size if unit.path else 0)


def _portable(flags: Sequence[str]) -> list[str]:
    """Flags without include folders: where a tree lies does not change what is compiled."""
    kept, skip = [], False
    for flag in flags:
        if skip or flag.startswith("-ffile-prefix-map"):
            skip = False
        elif flag in ("-I", "-isystem"):
            skip = True
        else:
            kept.append(flag)
    return kept


def _compile_with_header(compiler: Compiler, unit: _Unit, cache: BuildCache, output: Path) -> None:
    include = include_flags(unit.header, cache) if unit.header is not None else ()
    if include:
        try:
            return _compile(compiler, replace(unit, flags=(*unit.flags, *include)), output)
        except CompileError:
            # Perhaps the compiler cannot use the file here. If not that, then this says what it is.
            pass
    _compile(compiler, unit, output)


def _compile(compiler: Compiler, unit: _Unit, output: Path) -> None:
    with private_folder() as folder:
        source = unit.name if unit.path is None else str(unit.path)
        if unit.text is not None:
            (folder / unit.name).write_text(unit.text)
        _run(compiler, [*unit.flags, "-c", source, "-o", str(output)], folder, f"compiling {unit.name}", unit.hint)


def _link(compiler: Compiler, objects: Sequence[bytes], given: Sequence[Path], output: Path) -> None:
    with private_folder() as folder:
        export_map = folder / "exports.map"
        export_map.write_text(_EXPORT_MAP)
        # The bytes that were checked: the cache may change meanwhile.
        inputs = [folder / f"{i}.o" for i in range(len(objects))]
        for path, content in zip(inputs, objects, strict=True):
            path.write_bytes(content)
        flags = [*map(str, [*inputs, *given]), *toolchain.link_flags(export_map), "-o", str(output)]
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
