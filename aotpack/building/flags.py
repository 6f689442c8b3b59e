"""The C++ compiler's flags for our own sources, for each target. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aotpack.building import native_sources
from aotpack.errors import CompileError
from aotpack.targets import BY_NAME, TABLE

# Of everything that becomes a part of a module.
COMMON = (
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
    names = (f"-DCPU_CAPABILITY_{capability}", f"-DCPU_CAPABILITY={capability}")
    # And that on ARM they may call Sleef's functions (csrc/module/vecmath/sleef.h), not libm's for each lane, and use
    # instructions for bf16, of which GCC does not define the macro for SVE.
    sleef = ("-DAT_BUILD_ARM_VEC256_WITH_SLEEF",) if info.arch == "aarch64" else ()
    bf16 = ("-D__ARM_FEATURE_BF16",) if info.sve_bits is not None else ()
    return (*info.march, *names, *sleef, *bf16)


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
        *COMMON,
        *target_flags(target),
        *_extension_flags(target, halves, source),
        optimize,
        "-ffp-contract=fast",
        *(f"-D{macro}" for macro in macros if source is None or native_sources.mentions(source, macro)),
        *includes(native_sources.include_folders()),
    ]


def _extension_flags(target: str, halves: frozenset[str], source: Path | None) -> list[str]:
    """For instructions beyond the target's level, of those that `source` asks for."""
    flags: list[str] = []
    for extension in BY_NAME[target].extensions:
        wanted = extension.half is None or extension.half in halves
        if wanted and (source is None or native_sources.mentions(source, extension.macro)):
            flags += extension.flags
    return flags


def includes(folders: list[Path]) -> list[str]:
    """Flags that search headers in these folders."""
    return [flag for folder in folders for flag in ("-I", str(folder))]


def optimization(source: Path) -> str:
    """The level for one of our sources. Outside the kernels little time is spent: -O3 would cost more than it gains."""
    return "-O3" if native_sources.source_root() / "kernels" in source.parents else "-O2"


def includes_torch(source: Path) -> bool:
    """Whether one of our sources computes by a header of torch."""
    return native_sources.mentions(source, "ATen/native")


def portable(flags: Sequence[str]) -> list[str]:
    """`flags` without include folders: where a tree lies does not change what is compiled."""
    kept, skip = [], False
    for flag in flags:
        if skip or flag.startswith("-ffile-prefix-map"):
            skip = False
        elif flag in ("-I", "-isystem"):
            skip = True
        else:
            kept.append(flag)
    return kept
