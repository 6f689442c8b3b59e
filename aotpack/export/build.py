"""The build: a captured Program becomes an archive."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from aotpack import __version__
from aotpack.archive import (
    Constant,
    Entry,
    FileSource,
    Kernel,
    Manifest,
    Module,
    Variant,
    layout_constants,
    write_archive,
)
from aotpack.errors import BuildError
from aotpack.export import toolchain
from aotpack.export.cache import BuildCache
from aotpack.export.capture import manifest_dtype
from aotpack.export.compile import compile_module, kernels_ahead
from aotpack.export.goldens import golden_files, tensor_bytes
from aotpack.export.lower import Lowered, LoweredConstant, kernel_shims, lower, uses_bf16
from aotpack.export.passes import PASSES
from aotpack.export.program import Program
from aotpack.export.runner import run_passes
from aotpack.spec import Target

_ABI_VERSION = 1
_IMPORTS = ("alloc", "free", "fail", "seed")

Progress = Callable[[str, float | None, str], None]


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Attributes:
        goldens: store the example call and eager's answer in the archive, for `aotpack verify`.
        cache_dir: folder of the build cache; by default `$AOTPACK_CACHE_DIR` or the XDG cache folder.
        compiler: path of the C++ compiler; by default $CXX, g++, clang++ or c++.
        jobs: compiler processes at a time; by default one per core.
    """

    goldens: bool = True
    cache_dir: str | os.PathLike[str] | None = None
    compiler: str | None = None
    jobs: int | None = None


@dataclass(frozen=True)
class BuildReport:
    """What a build made and how long each phase took (seconds)."""

    path: Path
    size: int
    targets: tuple[str, ...]
    seconds: dict[str, float]
    notes: tuple[tuple[str, str], ...]
    cache_hits: int
    cache_misses: int

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        result = dataclasses.asdict(self)
        result["path"] = str(self.path)
        result["notes"] = [{"pass": name, "note": note} for name, note in self.notes]
        return result


@dataclass
class _Clock:
    progress: Progress | None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        start = time.perf_counter()
        self._tell(name, None, detail)
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self._tell(name, self.seconds[name], detail)

    def _tell(self, name: str, seconds: float | None, detail: str) -> None:
        if self.progress is not None:
            self.progress(name, seconds, detail)


def build_archive(
    program: Program,
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    targets: Sequence[str] | None = None,
    options: BuildOptions | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Builds the archive of `program` at `output`: all or nothing, an old file stays until the new one is complete.

    Args:
        program: from `aot_export` or `load_exported`.
        output: path of the archive.
        name: the model's name; by default the program's.
        targets: what to compile for, e.g. `["x86-64-v3", "x86-64-v4"]`; by default this host's best.
        options: see `BuildOptions`.
        progress: called with (phase, None, detail) when a phase begins and (phase, seconds, detail) when it ends.
            Phases: passes, lower, compile, pack.

    Raises:
        UnsupportedOperatorError: operators without a kernel, all of them at once, before the model's code is compiled.
        BuildError: any other failure, named by its step.
        UnsupportedTargetError: an unknown target.
        OSError: the output cannot be written.
    """
    options = options or BuildOptions()
    names = _target_names(targets)
    output = Path(output)
    if not output.parent.is_dir():
        raise BuildError(f"the folder {output.parent} does not exist", hint="create it, or choose another output")
    compiler = toolchain.find_compiler(options.compiler)
    cache = BuildCache(Path(options.cache_dir) if options.cache_dir else None)
    clock = _Clock(progress)
    with clock.phase("passes"):
        program = run_passes(program, PASSES)
    lowered: list[Lowered] = []
    with kernels_ahead(kernel_shims(program), names, cache, compiler=compiler, bf16=uses_bf16(program)):
        for target in names:
            with clock.phase("lower", target):
                lowered.append(lower(program, target))
    objects: list[bytes] = []
    for module in lowered:
        with clock.phase("compile", module.target):
            objects.append(
                compile_module(
                    module,
                    cache,
                    compiler=compiler,
                    jobs=options.jobs,
                    progress=(lambda unit: progress("compile", None, unit)) if progress else None,
                )
            )
    with clock.phase("pack"):
        size = _pack(program, name or program.name, lowered, objects, output, options, compiler.version)
    return BuildReport(output, size, names, clock.seconds, program.notes, cache.hits, cache.misses)


def _target_names(targets: Sequence[str] | None) -> tuple[str, ...]:
    parsed = [Target.parse(target).name for target in (targets or ["native"])]
    for target in parsed:
        toolchain.target_flags(target)
    return tuple(dict.fromkeys(parsed))


def _pack(
    program: Program,
    name: str,
    lowered: Sequence[Lowered],
    objects: Sequence[bytes],
    output: Path,
    options: BuildOptions,
    compiler_version: str,
) -> int:
    values: dict[str, LoweredConstant] = {}
    for module in lowered:
        for constant in module.constants:
            values.setdefault(constant.name, constant)
    layout = layout_constants((key, tensor_bytes(value.value)) for key, value in values.items())
    constants = tuple(
        Constant(
            name=key,
            role=constant.info.role,
            sources=constant.info.sources,
            dtype=manifest_dtype(constant.value.dtype),
            shape=tuple(constant.value.shape),
            stride=tuple(constant.value.stride()),
            file=layout.placements[key].segment,
            offset=layout.placements[key].offset,
            nbytes=layout.placements[key].nbytes,
            sha256=layout.placements[key].sha256,
            mutated=constant.info.mutated,
        )
        for key, constant in values.items()
    )
    numbers = {constant.name: index for index, constant in enumerate(constants)}
    sources = list(layout.segments)
    modules = []
    for module, code in zip(lowered, objects, strict=True):
        modules.append(
            Module(
                target=module.target,
                abi_version=_ABI_VERSION,
                file=len(sources),
                constants=tuple(numbers[constant.name] for constant in module.constants),
                imports=_IMPORTS,
                kernels=tuple(Kernel(kernel, ops) for kernel, ops in module.kernels),
            )
        )
        sources.append(FileSource.from_bytes(f"modules/{module.target}/{program.signature.name}.so", code))
    goldens, golden_sources = golden_files(program, len(sources)) if options.goldens else ((), [])
    sources += golden_sources
    signature = program.signature
    entry = Entry(
        name=signature.name,
        dims=signature.dims,
        inputs=signature.inputs,
        outputs=signature.outputs,
        in_spec=signature.in_spec,
        out_spec=signature.out_spec,
        variants=(Variant("default", (), tuple(modules)),),
        goldens=goldens,
    )
    producer = {
        "aotpack": __version__,
        "torch": str(torch.__version__),
        "compiler": compiler_version,
        "flags": " ".join(
            flag for flag in toolchain.library_flags(lowered[0].target, bf16=lowered[0].bf16) if flag.startswith("-O")
        ),
        "source_sha256": _source_hash(lowered),
    }
    return write_archive(output, Manifest(name, producer, constants, (entry,)), sources)


def _source_hash(lowered: Sequence[Lowered]) -> str:
    digest = hashlib.sha256()
    for module in lowered:
        for text in (module.wrapper, *module.units):
            digest.update(text.encode() + b"\0")
    return digest.hexdigest()
