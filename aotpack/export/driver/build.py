"""The build: a captured Program becomes an archive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aotpack.archive import check_output
from aotpack.building.cache import BuildCache
from aotpack.building.compiler import find_compiler
from aotpack.building.frames import roomy
from aotpack.building.processes import ProcessGroup
from aotpack.errors import BuildError, UnsupportedOperatorError, UnsupportedTargetError
from aotpack.export.backends.backend import Backend, HostStep, Tools
from aotpack.export.backends.unsupported_operators import OperatorUse, refuse
from aotpack.export.blocks.instances import lowered_for
from aotpack.export.diagnostics.internal_errors import callers_own, reported
from aotpack.export.driver import self_check
from aotpack.export.driver.backends import by_backend, on_host
from aotpack.export.driver.compile import Lowered, compile_modules
from aotpack.export.driver.compiled import CompiledModule, CompiledUnit
from aotpack.export.driver.host_steps import refuse_host_steps
from aotpack.export.driver.pack import Draft, pack
from aotpack.export.driver.pipeline import select
from aotpack.export.driver.provenance import pass_reports
from aotpack.export.driver.regions import MARKED, OFF, Regions, check_regions, regions_of
from aotpack.export.driver.report import BuildReport
from aotpack.export.driver.self_check import CheckReport
from aotpack.export.driver.stages import Partitioner, refuse_unused, stages_of
from aotpack.export.driver.user_passes import UserPass, warn_of_unused, with_unused, with_user_passes
from aotpack.export.ir import origins
from aotpack.export.ir.program import PassReport, Program
from aotpack.export.ir.units import DEFAULT, Unit, units_of
from aotpack.export.ops.cuda.gpu import tf32_products
from aotpack.export.partition.split import SplitProgram
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.runner import Pass, Step, run_passes
from aotpack.export.torch_compat.patches import exclusive
from aotpack.export.tracing.autocast import no_autocast
from aotpack.export.weights.identity import Identities, share_state
from aotpack.export.weights.updatable import Replaceable, replaceable
from aotpack.export.weights.values import refuse_missing_values
from aotpack.targets import Target

Progress = Callable[[str, float | None, str], None]


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build.

    Attributes:
        check: run the example calls of the finished archive in a separate process and compare the outputs with eager's.
            The build fails if they differ.
        goldens: store the example call and eager's outputs in the archive, for `aotpack verify`.
        cache_dir: directory of the build cache. Default: `$AOTPACK_CACHE_DIR` or the XDG cache directory. After a build
            that adds files, the least recently used files above `$AOTPACK_CACHE_SIZE` (default: 5 GB) are removed.
        compiler: the C++ compiler, a path or a command such as `ccache g++`. Default: $CXX, g++, clang++ or c++.
        jobs: number of concurrent compiler processes. Default: one per core.
        opt_level: optimization level of generated C++, 1 to 3. Default: `$AOTPACK_OPT_LEVEL` or 3. At level 1 generated
            kernels compile in less than half the time and may be slower. Kernels of aotpack are optimized at any level.
        without: names of passes to leave out (`aotpack.export.driver.pipeline.switchable`), or `"all"`.
        updatable: store the original weights, and folding as a separate entry, so that the runtime can replace weights
            (`Model.update_weights`). Otherwise the archive is frozen: it contains only folded and packed weights.
        code_only: leave the weights out: an updatable archive that cannot run until `aotpack pack` adds them. The
            parameters and persistent buffers of the model need no values, and may be on the meta device. Example calls
            are neither run nor stored (`check` and `goldens` have no effect).
        host_steps: run operators without a GPU kernel on the host, with copies of what they read and return. Otherwise
            such operators are not supported in builds for GPUs.
        description: store what `aotpack inspect --graph` and `--html` show: the graph by module, the nodes that each
            kernel computes, and the memory of values. Compressed, about 15 bytes for each node of the graph.
        profile: have the modules record when each kernel begins and ends, for `aotpack bench --per-kernel` and the like
            (docs/inspect.md). Costs some ten nanoseconds for each kernel of a call; for CPUs only.
        tf32: multiply float32 in TF32 on GPUs: products, convolutions and attention read 10 bits of each mantissa and
            add in single precision. Example calls are then compared with the tolerance of float16. CPUs compute in full
            precision.
        sources: store the sources of the modules with all headers that they include, so that `aotpack unpack` writes a
            folder that CMake builds without torch. Adds about 300 KB to the archive.
        free_source: free the source module's tensors as soon as they are packed. The module and `program` cannot be
            used afterwards, even if the build fails.
        regions: code that is compiled once and called with different weights (docs/regions.md): `"marked"`: functions
            under `torch.compiler.nested_compile_region`; `"auto"`: also modules that the model repeats, such as the
            layers of a transformer; `"off"`: none.
    """

    check: bool = True
    goldens: bool = True
    cache_dir: str | os.PathLike[str] | None = None
    compiler: str | None = None
    jobs: int | None = None
    opt_level: int | None = None
    without: Collection[str] = ()
    updatable: bool = False
    code_only: bool = False
    host_steps: bool = True
    description: bool = True
    profile: bool = False
    tf32: bool = False
    sources: bool = False
    free_source: bool = False
    regions: str = MARKED


@dataclass
class _Clock:
    progress: Progress | None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        start = time.perf_counter()
        self._tell(name, None, detail)
        with reported(f"{name} {detail}".rstrip()):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self._tell(name, self.seconds[name], detail)

    def unit(self, name: str) -> None:
        """One source was compiled."""
        self._tell("compile", None, name)

    def _tell(self, name: str, seconds: float | None, detail: str) -> None:
        if self.progress is not None:
            with callers_own():
                self.progress(name, seconds, detail)


@reported("build")
@roomy
def build_archive(
    program: Program | Sequence[Program],
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    targets: Sequence[str] | None = None,
    options: BuildOptions | None = None,
    partitioning: Partitioner | None = None,
    passes: Sequence[UserPass] = (),
    progress: Progress | None = None,
) -> BuildReport:
    """Builds an archive at `output`. An existing file is replaced only after the new one is complete.

    Args:
        program: a program from `aot_export` or `load_exported`, or several with different entry names. Shared weights
            are stored once. A buffer that one program writes to is state in all of them, and entries of one context
            share it.
        output: the path of the archive.
        name: the name of the model. Default: the name of the first program.
        targets: the targets to compile for, e.g. `["x86-64-v3", "x86-64-v4"]`. Default: the best target of this host.
        options: see `BuildOptions`.
        partitioning: compile the program in stages, which the archive carries as steps: what `partition` returns for
            it, or a function that returns this (or None: as a whole) for the program of each entry and variant, after
            the passes for all devices: `lambda program: partition(program, devices, passes=False)`.
        passes: passes of your own, such as what `rewrite_pattern` makes: functions of a `Program` that return one. They
            run for each entry and variant, before convolutions, norms and linears are fused and packed. A rewrite that
            matches nowhere is a warning.
        progress: callback invoked with (phase, None, detail) when a phase begins and with (phase, seconds, detail) when
            it ends. Phases: passes, lower, compile, pack, check. The detail names entry and variant if there are
            several.

    Raises:
        UnsupportedOperatorError: operators are not supported. All are reported at once, before any compilation.
        GoldenError: the outputs of the example call differ from eager's.
        PartitionError: the partitioning is not of a program of the archive.
        BuildError: any other failure, named by its step.
        InternalError: a bug in aotpack, with the place in the model if known.
        UnsupportedTargetError: a target is unknown.
        OSError: the output cannot be written.
    """
    options = options or BuildOptions()
    if options.code_only:
        options = replace(options, updatable=True, check=False, goldens=False)
    check_regions(options.regions)
    names = _target_names(targets)
    opt_level = _opt_level(options.opt_level)
    output = Path(output)
    check_output(output)
    cache = BuildCache(Path(options.cache_dir) if options.cache_dir else None)
    clock = _Clock(progress)
    identities = Identities()
    # An error, or Ctrl-C, kills every compiler of this build.
    with ProcessGroup() as group, no_autocast():
        tools = Tools(cache, find_compiler(options.compiler).within(group), options.jobs, opt_level)
        units, weights = _prepare(program, names, options, partitioning, tuple(passes), identities, clock)
        if options.check:
            self_check.prepare()
        about = {each.unit.label: f"{each.unit.label} " if len(units) > 1 else "" for each in units}
        with tf32_products(options.tf32):
            lowered = _lower_all(units, tools, clock, weights_known=weights is None, about=about, hooks=options.profile)
        if not options.host_steps:
            refuse_host_steps(each.module for modules in lowered for each in modules)
        compiled = [
            CompiledUnit(each.unit, _compile(modules, tools, clock, about=about[each.unit.label]), each.split)
            for each, modules in zip(units, lowered, strict=True)
        ]
        with clock.phase("pack"):
            draft = pack(
                compiled,
                name or compiled[0].unit.entry.name,
                output,
                identities=identities,
                replaceable=weights,
                free_source=options.free_source,
                code_only=options.code_only,
                sources=options.sources,
                description=options.description,
                tools=tools,
            )
    # What folds weights is no entry that users call.
    labels = [each.unit.label for each in units if weights is None or each.unit.entry is not weights.fold]
    size, checked = _finish(draft, labels, names, options, clock)
    if cache.misses:
        cache.trim()
    reports: dict[str, dict[str, tuple[PassReport, ...]]] = {}
    on_host: dict[str, dict[str, tuple[HostStep, ...]]] = {}
    for unit in compiled:
        reports.setdefault(unit.unit.name, {})[unit.unit.variant] = pass_reports(unit)
        if unit.host_steps:
            on_host.setdefault(unit.unit.name, {})[unit.unit.variant] = unit.host_steps
    choices = tuple(
        dict.fromkeys(choice for unit in compiled for module in unit.modules for choice in module.lowered.choices)
    )
    return BuildReport(output, size, names, clock.seconds, reports, cache.hits, cache.misses, checked, on_host, choices)


def _opt_level(requested: int | None) -> int:
    text = os.environ.get("AOTPACK_OPT_LEVEL") or "3" if requested is None else str(requested)
    if text not in ("1", "2", "3"):
        source = "AOTPACK_OPT_LEVEL" if requested is None else "opt_level"
        raise BuildError(f"{source} is {text!r}", hint="use 1, 2 or 3")
    return int(text)


@dataclass(frozen=True)
class _Piece:
    """A program after the passes of a backend, to be compiled for these targets: a whole unit, or a stage of one.

    Attributes:
        names: where it runs the code of another stage, `model`: what that one's constants are called here.
        shared: whether other stages run its code.
    """

    backend: Backend
    program: Program
    targets: tuple[str, ...]
    stage: int = 0
    model: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False


@dataclass(frozen=True)
class _Prepared:
    """A unit after the passes that are true on every device, its stages if it has several, and what is compiled."""

    unit: Unit
    pieces: tuple[_Piece, ...]
    split: SplitProgram | None = None


@exclusive
def _prepare(
    program: Program | Sequence[Program],
    targets: Sequence[str],
    options: BuildOptions,
    partitioning: Partitioner | None,
    passes: Sequence[UserPass],
    identities: Identities,
    clock: _Clock,
) -> tuple[list[_Prepared], Replaceable | None]:
    """What is to be compiled, after all passes, and what makes its weights replaceable if that is wanted."""
    units = units_of([program] if isinstance(program, Program) else list(program))
    refuse_unused(partitioning, units)
    refuse_missing_values([unit.program for unit in units], code_only=options.code_only)
    common = with_user_passes(select(options.without, COMMON), passes)
    backends = [(backend, select(options.without, backend.passes), group) for backend, group in by_backend(targets)]
    prepared = []
    # Stages are those of a partitioning, and modules for devices are better whole.
    whole = partitioning is not None or any(backend.name != "cpu" for backend, _, _ in backends)
    with clock.phase("passes"):
        for unit, shared in zip(units, share_state([unit.program for unit in units]), strict=True):
            origins.mark(shared)
            regions = regions_of(shared, OFF if whole else options.regions)
            if regions.split is not None:
                pieces = _in_regions(regions.split, regions, common, backends)
                prepared.append(_Prepared(replace(unit, program=regions.program), pieces, regions.split))
                continue
            program = with_unused(passes, run_passes(regions.program, common))
            origins.mark(program)
            split = stages_of(partitioning, program)
            stages = [program] if split is None else [stage.program for stage in split.stages]
            pieces = tuple(
                _Piece(backend, run_passes(stage, own), group, number)
                for backend, own, group in backends
                for number, stage in enumerate(stages)
            )
            prepared.append(_Prepared(replace(unit, program=program), pieces, split))
        warn_of_unused(passes, [piece.program for each in prepared for piece in each.pieces])
        if not options.updatable:
            return prepared, None
        weights = replaceable([piece.program for each in prepared for piece in each.pieces], identities)
        if weights.fold is not None:
            fold = tuple(_Piece(backend, weights.fold, group) for backend, group in on_host(targets))
            prepared.append(_Prepared(Unit(weights.fold, DEFAULT, (), weights.fold), fold))
    return prepared, weights


def _in_regions(
    split: SplitProgram,
    regions: Regions,
    common: Sequence[Step],
    backends: Sequence[tuple[Backend, Sequence[Pass], tuple[str, ...]]],
) -> tuple[_Piece, ...]:
    """The stages of a program, of whose blocks each distinct one goes through the passes once."""
    stages = [stage.program for stage in split.stages]
    own = {number: run_passes(stage, common) for number, stage in enumerate(stages) if number not in regions.instances}
    pieces: list[_Piece] = []
    for backend, passes, group in backends:
        made = {number: run_passes(program, passes) for number, program in own.items()}
        for number in range(len(stages)):
            if number in made:
                pieces.append(_Piece(backend, made[number], group, number, shared=regions.is_shared(number)))
                continue
            instance, model = regions.instances[number]
            program, names = instance.program(made[model]), instance.names(made[model])
            pieces.append(_Piece(backend, program, group, number, model, names))
    return tuple(pieces)


@exclusive
def _lower_all(
    units: Sequence[_Prepared],
    tools: Tools,
    clock: _Clock,
    *,
    weights_known: bool,
    about: Mapping[str, str],
    hooks: bool,
) -> list[list[Lowered]]:
    """All units' sources, before any is compiled: operators without a kernel are reported for all of them at once."""
    lowered: list[list[Lowered]] = []
    uses: list[OperatorUse] = []
    for each in units:
        modules: dict[tuple[int, str], Lowered] = {}
        with ExitStack() as ahead:
            # What each module needs of our kernels compiles while code is generated for all of them.
            for piece in each.pieces:
                if piece.model is None:
                    ahead.enter_context(piece.backend.compile_ahead(piece.program, piece.targets, tools))
            for piece in each.pieces:
                where = about[each.unit.label] + (f"stage {piece.stage + 1} " if each.split is not None else "")
                try:
                    for target in piece.targets:
                        if piece.model is not None:
                            module = lowered_for(piece.program, modules[piece.model, target].module, piece.names)
                        else:
                            with clock.phase("lower", where + target):
                                known = weights_known and not piece.shared
                                module = piece.backend.lower(piece.program, target, weights_known=known, hooks=hooks)
                        modules[piece.stage, target] = Lowered(
                            piece.backend, piece.program, module, piece.stage, piece.model
                        )
                except UnsupportedOperatorError as error:
                    uses += [OperatorUse(*use) for use in error.uses]
        lowered.append(list(modules.values()))
    refuse(uses)
    return lowered


def _compile(lowered: Sequence[Lowered], tools: Tools, clock: _Clock, *, about: str) -> tuple[CompiledModule, ...]:
    compiled: list[CompiledModule] = []
    for target in dict.fromkeys(each.module.target for each in lowered):
        with clock.phase("compile", about + target):
            own = [each for each in lowered if each.module.target == target]
            compiled += compile_modules(own, tools, clock.unit)
    return tuple(compiled)


@exclusive
def _finish(
    draft: Draft, labels: Sequence[str], targets: Sequence[str], options: BuildOptions, clock: _Clock
) -> tuple[int, CheckReport]:
    """Writes the archive, checks it, and puts it in its place; its size, and what the check showed."""
    why = "the archive has no weights" if options.code_only else "check=False"
    checked = CheckReport(skipped=why, unchecked=tuple(labels))
    with clock.phase("pack"):
        staged, examples = draft.stage(goldens=options.goldens)
    with staged:
        if options.check:
            with clock.phase("check"):
                checked = self_check.check(staged.path, examples, labels, targets)
        if not checked.open or not options.goldens:
            staged.commit()
            return staged.size, checked
    # `aotpack verify` would take another answer that is as right for a wrong one.
    with clock.phase("pack"), draft.stage(goldens=True, without=tuple(checked.open))[0] as staged:
        staged.commit()
        return staged.size, checked


def _target_names(targets: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(targets, str):
        raise UnsupportedTargetError(f"targets is the string {targets!r}", hint=f"use a list: [{targets!r}]")
    return tuple(target.name for target in Target.all_buildable(targets or ["native"]))
