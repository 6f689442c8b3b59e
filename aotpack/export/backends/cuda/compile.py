"""Compiling: the host code of a module for a GPU becomes a shared object; its kernels are compiled already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from aotpack.building import native_sources
from aotpack.building.cache import digest_of
from aotpack.building.compiler import Compiler
from aotpack.building.flags import portable
from aotpack.building.module_sources import ModuleSources
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.compile import library_units
from aotpack.export.backends.cuda.lower import LoweredCuda
from aotpack.export.backends.cuda.providers import sources as provider_sources
from aotpack.export.backends.cuda.wrapper_source import DEVICE_HEADER
from aotpack.export.backends.native import Unit, build_units
from aotpack.export.backends.precompiled import Precompiled, precompiled
from aotpack.targets import BY_NAME

# What every module for a device links.
_SOURCES = ("tensor.cpp", "device/device.cpp")
# What one links that runs operators on the host; the sources of these bring tensor.cpp.
_SOURCES_WITH_HOST_STEPS = ("device/device.cpp", "device/host_step.cpp")

_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffunction-sections",
    "-fdata-sections",
    # Sizes that models compute are those of Python.
    "-ffp-contract=off",
    "-DNDEBUG",
    "-w",
)

# One exported symbol; libstdc++ and libgcc inside; nothing undefined beyond libc and libm.
_LINK_FLAGS = (
    "-shared",
    "-static-libstdc++",
    "-static-libgcc",
    "-Wl,--exclude-libs,ALL",
    "-Wl,--gc-sections",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,-z,relro,-z,now",
    "-Wl,--build-id=none",
    "-s",
    "-lm",
)


def compile_host_code(module: LoweredCuda, tools: Tools, *, progress: Callable[[str], None] | None = None) -> bytes:
    """The shared object of a module's host code.

    Raises:
        CompileError: the compiler failed; the message has its first errors.
    """
    link_flags = _link_flags(module, tools.compiler)
    units = _units(module, tools)
    return build_units(
        units,
        tools.compiler,
        tools.cache,
        link_flags=link_flags,
        waiting=tools.waiting,
        jobs=tools.jobs,
        progress=progress,
    )


def host_sources(module: LoweredCuda, tools: Tools) -> ModuleSources:
    """What `compile_host_code` compiles, and the PTX of the kernels."""
    return ModuleSources(
        tuple(unit.source for unit in _units(module, tools)),
        tuple(_link_flags(module, tools.compiler)),
        roots={"torch": toolchain.torch_include_folder()},
        texts={f"{kernel.name}.ptx": kernel.ptx for kernel in module.device_code},
    )


def _link_flags(module: LoweredCuda, compiler: Compiler) -> Sequence[str]:
    return toolchain.link_flags(openmp=compiler.is_clang) if module.host_shims else _LINK_FLAGS


def _units(module: LoweredCuda, tools: Tools) -> list[Unit]:
    flags = host_flags(module.target)
    identity = tools.compiler.identity
    units = [
        Unit(
            "wrapper.cpp",
            flags,
            digest_of([identity, native_sources.headers_hash(), torch.__version__, *portable(flags), module.wrapper]),
            text=module.wrapper,
            header=host_header(module.target, tools.compiler),
        )
    ]
    flags_of_kernels = host_kernel_flags(module.target)
    for index, text in enumerate(module.host_kernels):
        known = [identity, native_sources.headers_hash(), torch.__version__, *portable(flags_of_kernels), text]
        units.append(Unit(f"host_kernels{index}.cpp", flags_of_kernels, digest_of(known), text=text))
    if module.host_shims:
        units += library_units(module.target, module.host_shims, tools.compiler, halves=module.halves)
    common = _SOURCES_WITH_HOST_STEPS if module.host_shims else _SOURCES
    for name in (*common, *provider_sources(module.providers)):
        source = native_sources.module_folder() / name
        key = digest_of([identity, *portable(flags), name, native_sources.content_hash(source)])
        units.append(Unit(name, flags, key, path=source))
    return units


def host_flags(target: str) -> tuple[str, ...]:
    """Flags of the C++ compiler for host code."""
    folders: Sequence[str] = [str(folder) for folder in native_sources.include_folders()]
    return (*_FLAGS, *BY_NAME[target].march, *(flag for folder in folders for flag in ("-I", folder)))


def host_kernel_flags(target: str) -> tuple[str, ...]:
    """Flags of the C++ compiler for kernels of single numbers, which need no threads."""
    flags = toolchain.generated_flags(target, optimize="-O1")
    return tuple(flag for flag in flags if flag != "-fopenmp")


def host_header(target: str, compiler: Compiler) -> Precompiled | None:
    """What host code includes first, to be precompiled."""
    return precompiled("wrapper.cpp", DEVICE_HEADER, host_flags(target), compiler)
