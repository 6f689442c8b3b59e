"""The C++ compiler's flags for each target."""

from __future__ import annotations

import os
from pathlib import Path

from aotpack.building import native_sources
from aotpack.building.compiler import Compiler, find_compiler
from aotpack.errors import CompileError
from aotpack.targets import BY_NAME, TABLE

__all__ = [
    "Compiler",
    "compile_targets",
    "custom_flags",
    "find_compiler",
    "generated_flags",
    "library_flags",
    "link_flags",
    "target_flags",
    "torch_include_folder",
]

_COMMON = (
    "-std=c++20",
    "-fPIC",
    "-fopenmp",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-DNDEBUG",
    "-w",
)


def target_flags(target: str) -> tuple[str, ...]:
    """Flags that choose the instruction set; for GPUs that of the code on the host.

    Raises:
        CompileError: this version cannot compile for `target`.
    """
    info = BY_NAME.get(target)
    if info is None or not info.buildable:
        raise CompileError(
            f"cannot compile for the target {target!r}", hint=f"choose of {', '.join(compile_targets())}"
        )
    capability = info.torch_capability
    if capability is None:
        return info.march
    # Beside the instruction set, the names by which torch's vector headers know it.
    return (*info.march, f"-DCPU_CAPABILITY_{capability}", f"-DCPU_CAPABILITY={capability}")


def compile_targets() -> tuple[str, ...]:
    """Targets that this version compiles for."""
    return tuple(info.name for info in TABLE if info.backend == "cpu" and info.buildable)


def library_flags(
    target: str, *, halves: frozenset[str], optimize: str = "-O3", source: Path | None = None
) -> list[str]:
    """For our own kernels: contraction to FMA is wanted; code for half precisions not in `halves` is left out.

    With AOTPACK_TRACE set in the environment, operators note every call at run time (csrc/module/trace.h). Where
    `source` is given, only macros that it or its headers read are defined, so that models which differ in the others
    share its object.
    """
    macros = []
    if "bf16" not in halves:
        macros.append("AOTPACK_WITHOUT_BF16")
    if "f16" not in halves:
        macros.append("AOTPACK_WITHOUT_F16")
    if os.environ.get("AOTPACK_TRACE"):
        macros.append("AOTPACK_TRACE")
    return [
        *_COMMON,
        *target_flags(target),
        optimize,
        "-ffp-contract=fast",
        *(f"-D{macro}" for macro in macros if source is None or native_sources.mentions(source, macro)),
        *_includes(native_sources.include_folders()),
        *(_torch_headers() if source is not None and includes_torch(source) else ()),
    ]


def includes_torch(source: Path) -> bool:
    """Whether one of our sources computes by a header of torch."""
    return native_sources.mentions(source, "ATen/native")


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
        *_COMMON,
        *target_flags(target),
        optimize,
        # As Inductor compiles its kernels: rounding stays that of the separate operations.
        "-ffp-contract=off",
        "-DTORCH_INDUCTOR_CPP_WRAPPER",
        *_includes(native_sources.include_folders()),
        *_torch_headers(),
    ]


def custom_flags(target: str) -> list[str]:
    """For kernels of the user: rounding as it is written, also where compilers would contract by themselves."""
    return [*_COMMON, *target_flags(target), "-O2", "-ffp-contract=off"]


def link_flags() -> list[str]:
    """One exported symbol; libstdc++ and libgcc inside; nothing undefined beyond libc, libm and OpenMP."""
    return [
        "-shared",
        "-fopenmp",
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


def _includes(folders: list[Path]) -> list[str]:
    return [flag for folder in folders for flag in ("-I", str(folder))]
