"""Compiling: sources of a module become one stripped shared object, in parallel and with the build cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from aotpack.building import native_sources, objects
from aotpack.building.cache import digest_of
from aotpack.building.flags import optimization, portable
from aotpack.building.module_sources import ModuleSources
from aotpack.building.temporary import private_folder
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu import (
    custom_units,
    kernel_source,
    score_source,
    toolchain,
    wrapper_source,
    wrapper_words,
)
from aotpack.export.backends.cpu.lower import Lowered
from aotpack.export.backends.cpu.toolchain import Compiler
from aotpack.export.backends.native import Unit, build_units, compile_unit
from aotpack.export.backends.precompiled import Precompiled, compile_ahead, in_background, precompiled

# Beyond this, optimising the wrapper costs minutes and gains nothing: its work is calls.
_WRAPPER_O0 = 400_000
# So many characters of calls compile as fast as one of a kernel.
_CALLS = 20
_OLDER, _NEWER = ("-std=c++17",), ("-std=c++20",)
# Wrappers with aotpack's own header; and where GCC cannot compile one with that.
_OWN = ("-fno-exceptions", "-fasynchronous-unwind-tables")
_WHOLE = ("-fexceptions", "-DAOTPACK_WHOLE_WRAPPER", *_NEWER)


def compile_module(lowered: Lowered, tools: Tools, *, progress: Callable[[str], None] | None = None) -> bytes:
    """The module's shared object.

    Args:
        lowered: its sources.
        tools: the cache, where objects come from and go to, and the compiler.
        progress: called with the name of each source after it compiles.

    Raises:
        CompileError: the compiler failed; the message has its first errors.
    """
    units = _units(lowered, tools)
    given = custom_units.objects(lowered.custom, lowered.target)

    return build_units(
        units,
        tools.compiler,
        tools.cache,
        link_flags=_link_flags(lowered, tools.compiler),
        given=given,
        waiting=tools.waiting,
        jobs=tools.jobs,
        progress=progress,
    )


def headers(target: str, tools: Tools) -> tuple[Precompiled, ...]:
    """What kernels and wrappers begin with."""
    found = (_kernel_header(target, tools.compiler, tools.opt_level), _wrapper_header(target, tools.compiler))
    return tuple(header for header in found if header is not None)


def module_sources(lowered: Lowered, tools: Tools) -> ModuleSources:
    """What `compile_module` compiles.

    Raises:
        CompileError: a source of the user cannot be preprocessed.
    """
    return ModuleSources(
        tuple(unit.source for unit in _units(lowered, tools)),
        tuple(_link_flags(lowered, tools.compiler)),
        tuple(custom_units.objects(lowered.custom, lowered.target)),
        {"torch": toolchain.torch_include_folder()},
    )


@contextmanager
def kernels_ahead(
    shims: Iterable[str], targets: Sequence[str], tools: Tools, *, halves: frozenset[str]
) -> Iterator[Callable[[str, str], None]]:
    """Compiles our kernels for `shims`, headers, and sources of generated kernels that the function is called with,
    into the cache in the background.
    """
    with in_background() as pool:
        for target in targets:
            own = tools.for_target(target)
            compiler = own.compiler
            for unit in library_units(target, shims, compiler, halves=halves):
                if unit.made is not None:
                    continue
                # What fails here fails again, and is reported, when the module is compiled.
                pool.submit(tools.cache.get, unit.key, ".o", partial(compile_unit, compiler, unit))
            compile_ahead(headers(target, own), tools.cache, compiler, pool)

        def compile_kernels(target: str, text: str) -> None:
            # Compilers wait already for sources with torch's header.
            if not text.startswith(kernel_source.PREFIX):
                own = tools.for_target(target)
                unit = _kernels("kernels.cpp", text, target, own)
                pool.submit(tools.cache.get, unit.key, ".o", partial(compile_unit, own.compiler, unit))

        yield compile_kernels


def _link_flags(lowered: Lowered, compiler: Compiler) -> list[str]:
    return toolchain.link_flags(openmp=compiler.is_clang or bool(lowered.custom))


def _units(lowered: Lowered, tools: Tools) -> list[Unit]:
    target, compiler = lowered.target, tools.compiler
    small = len(lowered.wrapper) <= _WRAPPER_O0
    own = lowered.wrapper.startswith(wrapper_words.OWN)
    wrapper_flags = _wrapper_flags(target, "-O1" if small else "-O0", older=not lowered.custom)
    if own:
        # Other compilers take it that nothing is thrown through such functions.
        wrapper_flags += _WHOLE if compiler.is_clang else _OWN
    common = _common(compiler)
    declared = native_sources.headers_hash(frozenset(native_sources.groups_of(lowered.shims)))
    units = [
        *(
            _kernels(f"kernels{i}.cpp", text, target, tools)
            for i, text in sorted(enumerate(lowered.units), key=lambda item: -len(item[1]))
        ),
        Unit(
            "wrapper.cpp",
            wrapper_flags,
            digest_of([*common, declared, *portable(wrapper_flags), lowered.wrapper]),
            text=lowered.wrapper,
            header=_wrapper_header(target, compiler) if small and not own and not lowered.custom else None,
            # Of a torch whose headers need it.
            otherwise=_WHOLE if own else _NEWER,
            cost=len(lowered.wrapper) // _CALLS,
        ),
    ]
    if lowered.functions:
        # Loops over single numbers become vectors at -O3 only.
        flags = tuple(toolchain.generated_flags(target, optimize="-O3" if tools.opt_level > 1 else "-O1"))
        included = native_sources.content_hash(native_sources.module_folder() / score_source.HEADER)
        key = digest_of([*common, included, *portable(flags), lowered.functions])
        units.append(Unit("scores.cpp", flags, key, text=lowered.functions))
    units += library_units(target, lowered.shims, compiler, halves=lowered.halves, custom=bool(lowered.custom))
    return [*units, *(_custom_unit(unit, compiler) for unit in custom_units.units(lowered.custom, target))]


def _kernels(name: str, text: str, target: str, tools: Tools) -> Unit:
    """A source of kernels."""
    flags = _kernel_flags(target, tools.opt_level)
    torch_header = text.startswith(kernel_source.PREFIX)
    return Unit(
        name,
        flags,
        digest_of([*_common(tools.compiler), *portable(flags), text]),
        text=text,
        header=_kernel_header(target, tools.compiler, tools.opt_level) if torch_header else None,
        cost=len(text),
        # Of a compiler that cannot read our headers.
        otherwise=() if torch_header else ("-DAOTPACK_TORCH_VECTORS",),
    )


def _common(compiler: Compiler) -> list[str]:
    """What the objects of all generated sources depend on."""
    return [compiler.identity, native_sources.headers_hash(), torch.__version__]


def _kernel_flags(target: str, opt_level: int) -> tuple[str, ...]:
    return tuple(toolchain.generated_flags(target, optimize=f"-O{opt_level}"))


def _wrapper_flags(target: str, optimize: str = "-O1", *, older: bool = True) -> tuple[str, ...]:
    # The standard library's headers are half as long in C++17, and the wrapper is not much besides; aotpack/operator.h,
    # which kernels of users come with, requires C++20.
    return (*toolchain.generated_flags(target, optimize=optimize), *(_OLDER if older else ()))


def _kernel_header(target: str, compiler: Compiler, opt_level: int) -> Precompiled | None:
    return precompiled("kernels0.cpp", kernel_source.PREFIX, _kernel_flags(target, opt_level), compiler)


def _wrapper_header(target: str, compiler: Compiler) -> Precompiled | None:
    return precompiled("wrapper.cpp", wrapper_source.DEVICE_HEADER, _wrapper_flags(target), compiler)


def _custom_unit(unit: custom_units.CustomUnit, compiler: Compiler) -> Unit:
    """A source of the user, known by its text with everything that it includes."""
    found = Unit(unit.name, unit.flags, "", text=unit.text, hint=unit.advice)
    with private_folder() as folder:
        preprocessed = folder / "preprocessed"
        compile_unit(compiler, replace(found, flags=(*unit.flags, "-E", "-P")), preprocessed)
        return replace(found, key=digest_of([compiler.identity, *portable(unit.flags), preprocessed.read_text()]))


def library_units(
    target: str, shims: Iterable[str], compiler: Compiler, *, halves: frozenset[str], custom: bool = False
) -> list[Unit]:
    """Our sources of a module that calls `shims`."""
    sources = native_sources.sources_for(shims)
    if custom:
        folder = native_sources.module_folder()
        # Kernels of the user may have any construct of OpenMP.
        sources = [source for source in sources if source != folder / "openmp.cpp"] + [folder / "custom.cpp"]
    return source_units(sources, target, compiler, halves=halves)


def source_units(sources: Iterable[Path], target: str, compiler: Compiler, *, halves: frozenset[str]) -> list[Unit]:
    """Calls of the compiler for these of our sources."""
    units = []
    for source in sources:
        name = str(source.relative_to(native_sources.source_root()))
        flags = tuple(toolchain.library_flags(target, halves=halves, optimize=optimization(source), source=source))
        of_torch = [torch.__version__] if toolchain.includes_torch(source) else []
        object_key = objects.key_of(source, flags)
        made = None if of_torch else objects.find(object_key, compiler)
        key = digest_of([compiler.identity if made is None else made.compiler, object_key, *of_torch])
        units.append(Unit(name, flags, key, path=source, made=made))
    # The longest first, so that it does not run alone at the end.
    return sorted(units, key=lambda unit: -unit.path.stat().st_size if unit.path else 0)
