"""The compiler inputs for kernels of the user: sources, flags and cache keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotpack.errors import BuildError
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.custom_glue import Glue
from aotpack.export.custom_ops.kernels import CustomKernel, kernel_include_dir


@dataclass(frozen=True)
class CustomUnit:
    """One call of the compiler: a text, its flags, and what to say when it fails."""

    name: str
    text: str
    flags: tuple[str, ...]
    advice: str


def units(called: Sequence[Glue], target: str) -> list[CustomUnit]:
    """The sources of the kernels of these operators, each compiled once however many operators share it.

    Raises:
        BuildError: two operators want one source compiled in different ways.
    """
    groups: dict[Path | str, list[Glue]] = {}
    for glue in called:
        groups.setdefault(glue.kernel.sources[0] if glue.kernel.sources else glue.operator, []).append(glue)
    found: dict[Path | str, tuple[CustomKernel, CustomUnit]] = {}
    for first, group in groups.items():
        for glue in group[1:]:
            _refuse_different(group[0].kernel, glue.kernel, first)
        found[first] = group[0].kernel, _with_glue(group, target)
    for glue in called:
        for source in glue.kernel.sources[1:]:
            if source in found:
                _refuse_different(found[source][0], glue.kernel, source)
                continue
            unit = CustomUnit(
                _as_source(source.name),
                f"#include {_quoted(source)}\n",
                _flags(glue.kernel, [source], target),
                f"it is one of the sources of {glue.operator}",
            )
            found[source] = glue.kernel, unit
    return [unit for _, unit in found.values()]


def objects(called: Sequence[Glue], target: str) -> list[Path]:
    """The objects and static archives of the kernels of these operators, each once, objects first.

    Raises:
        BuildError: there are some for other targets alone.
    """
    files = dict.fromkeys(file for glue in called for file in glue.kernel.objects_for(target))
    return sorted(files, key=lambda file: file.suffix == ".a")


def described(called: Sequence[Glue]) -> Iterator[tuple[str, str]]:
    """For the archive's manifest: each operator and what its kernel was made of, by name and hash."""
    for glue in called:
        kernel = glue.kernel
        files = [*kernel.sources, *(file for _, listed in kernel.objects for file in listed)]
        digest = hashlib.sha256()
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        yield glue.operator, f"{', '.join(file.name for file in files)} sha256:{digest.hexdigest()}"


def _with_glue(group: Sequence[Glue], target: str) -> CustomUnit:
    kernel = group[0].kernel
    # The header comes first, so that a source finds its names whether or not it includes it before using them.
    lines = ['#include "aotpack/operator.h"']
    if kernel.sources:
        lines.append(f"#include {_quoted(kernel.sources[0])}")
    else:
        lines += [glue.declaration for glue in group]
    # The user's macros and `using namespace` end here: the glue is complete names in a namespace of its own.
    lines += [f'#line 1 "glue of {glue.operator}"\n{glue.definition}' for glue in group]
    # Compilers go by the ending: of a header they make something else than an object.
    name = kernel.sources[0].name if kernel.sources else group[0].operator.replace("::", "-")
    wanted = "; ".join(f"{glue.operator} is computed by {glue.signature}" for glue in group)
    flags = _flags(kernel, kernel.sources[:1], target)
    return CustomUnit(_as_source(name), "\n".join(lines) + "\n", flags, wanted)


def _flags(kernel: CustomKernel, sources: Sequence[Path], target: str) -> tuple[str, ...]:
    # Messages and __FILE__ name files without the folders of the build machine.
    mapped = [f"-ffile-prefix-map={source.parent}=." for source in sources]
    folders = [flag for folder in kernel.include_dirs for flag in ("-I", str(folder))]
    header = ["-I", str(kernel_include_dir())]
    return (*toolchain.custom_flags(target), *mapped, *header, *folders, *kernel.flags)


def _refuse_different(one: CustomKernel, other: CustomKernel, source: Path | str) -> None:
    if (one.flags, one.include_dirs) != (other.flags, other.include_dirs):
        raise BuildError(
            f"{one.operator} and {other.operator} share {source} but differ in flags or include_dirs",
            hint="use the same for both; a source is compiled once",
        )


def _as_source(name: str) -> str:
    return name if name.endswith((".cpp", ".cc", ".cxx")) else f"{name}.cpp"


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
