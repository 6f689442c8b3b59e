"""The C++ compiler's flags for what builds generate, and for our sources with torch's headers."""

from __future__ import annotations

from pathlib import Path

from aotpack.building import flags, native_sources
from aotpack.building.compiler import Compiler, find_compiler
from aotpack.building.flags import COMMON, compile_targets, includes, includes_torch, target_flags

__all__ = [
    "Compiler",
    "compile_targets",
    "custom_flags",
    "find_compiler",
    "generated_flags",
    "includes_torch",
    "library_flags",
    "link_flags",
    "target_flags",
    "torch_include_folder",
]


def library_flags(
    target: str, *, halves: frozenset[str], optimize: str = "-O3", source: Path | None = None
) -> list[str]:
    """Those of `flags.library_flags`, and torch's headers where `source` includes them."""
    torch_headers = _torch_headers() if source is not None and includes_torch(source) else []
    return [*flags.library_flags(target, halves=halves, optimize=optimize, source=source), *torch_headers]


def torch_include_folder() -> Path:
    """The folder of torch's headers."""
    import torch

    return Path(torch.__file__).parent / "include"


def _torch_headers() -> list[str]:
    include = torch_include_folder()
    macros = ["-DSTANDALONE_TORCH_HEADER", "-DC10_USING_CUSTOM_GENERATED_MACROS"]
    return [*macros, f"-ffile-prefix-map={include}=torch", "-isystem", str(include)]


def generated_flags(target: str, *, optimize: str) -> list[str]:
    """For generated code, which includes torch's header-only vector library."""
    return [
        *COMMON,
        *target_flags(target),
        optimize,
        # As Inductor compiles its kernels: rounding stays that of the separate operations.
        "-ffp-contract=off",
        "-DTORCH_INDUCTOR_CPP_WRAPPER",
        *includes(native_sources.include_folders()),
        *_torch_headers(),
    ]


def custom_flags(target: str) -> list[str]:
    """For kernels of the user: rounding as it is written, also where compilers would contract by themselves."""
    return [*COMMON, *target_flags(target), "-O2", "-ffp-contract=off"]


def link_flags(*, openmp: bool = True) -> list[str]:
    """One exported symbol; libstdc++ and libgcc inside; nothing undefined beyond libc and libm.

    `openmp`: the module needs the compiler's OpenMP runtime, which csrc/module/openmp.cpp replaces otherwise.
    """
    return [
        "-shared",
        *(["-fopenmp"] if openmp else []),
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
    ]
