"""The build: a captured Program becomes an archive."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from aotpack.archive import check_output
from aotpack.building.cache import BuildCache
from aotpack.building.collector import rare_collections
from aotpack.building.compiler import cross_compilers, find_compiler
from aotpack.building.frames import roomy
from aotpack.building.processes import ProcessGroup
from aotpack.errors import BuildError, UnsupportedTargetError
from aotpack.export.backends.backend import HostStep, Tools
from aotpack.export.backends.cuda.providers import checked as checked_providers
from aotpack.export.diagnostics.internal_errors import reported
from aotpack.export.driver import self_check
from aotpack.export.driver.algorithms import Algorithms
from aotpack.export.driver.backends import ready
from aotpack.export.driver.clock import Clock, Progress
from aotpack.export.driver.compile import Lowered, compile_modules
from aotpack.export.driver.compiled import CompiledModule, CompiledUnit
from aotpack.export.driver.early_constants import EarlyConstants, can_be_early, room_for
from aotpack.export.driver.host_steps import refuse_host_steps
from aotpack.export.driver.lower import lower_all
from aotpack.export.driver.options import BuildOptions
from aotpack.export.driver.pack import Draft, pack
from aotpack.export.driver.placing import beside, place_constants
from aotpack.export.driver.prepare import prepare
from aotpack.export.driver.provenance import pass_reports
from aotpack.export.driver.regions import check_regions
from aotpack.export.driver.report import AlgorithmReport, BuildReport
from aotpack.export.driver.self_check import CheckReport
from aotpack.export.driver.stages import Partitioner
from aotpack.export.driver.user_passes import UserPass
from aotpack.export.ir.program import PassReport, Program
from aotpack.export.ir.units import units_of
from aotpack.export.ops.cuda.gpu import FLOAT32_PRODUCTS, float32_products
from aotpack.export.torch_compat.patches import exclusive
from aotpack.export.tracing.autocast import no_autocast
from aotpack.export.weights.identity import Identities
from aotpack.targets import Target


@reported("build")
@rare_collections()
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
    if options.float32_products not in FLOAT32_PRODUCTS:
        raise BuildError(
            f"float32_products is {options.float32_products!r}",
            hint=f"use one of {', '.join(map(repr, FLOAT32_PRODUCTS))}",
        )
    names = _target_names(targets)
    opt_level = _opt_level(options.opt_level)
    providers = checked_providers(options.providers)
    output = Path(output)
    check_output(output)
    cache = BuildCache(Path(options.cache_dir) if options.cache_dir else None)
    clock = Clock(progress)
    identities = Identities()
    # An error, or Ctrl-C, kills every compiler of this build.
    with ProcessGroup() as group, no_autocast(), ExitStack() as waiting:
        cross = {arch: found.within(group) for arch, found in cross_compilers(names).items()}
        tools = Tools(cache, find_compiler(options.compiler).within(group), options.jobs, opt_level, cross=cross)
        algorithms = waiting.enter_context(_algorithms(options, tools))
        captured = [unit.program for unit in units_of([program] if isinstance(program, Program) else list(program))]
        # Compilers that read headers beside what is measured would be measured, too.
        if not algorithms.measures:
            tools = waiting.enter_context(ready(names, tools, captured))
        units, weights = prepare(program, names, options, partitioning, tuple(passes), identities, clock, algorithms)
        if algorithms.measures:
            tools = waiting.enter_context(ready(names, tools, captured))
        if options.check:
            self_check.prepare()
        about = {each.unit.label: f"{each.unit.label} " if len(units) > 1 else "" for each in units}
        room = 0 if options.code_only else room_for(units)
        early = None
        if can_be_early(units) and not (options.code_only or options.free_source):
            early = waiting.enter_context(EarlyConstants(units, identities, weights, output.parent, room))
        with float32_products(options.float32_products):
            lowered = lower_all(
                units,
                tools,
                clock,
                weights_known=weights is None,
                about=about,
                hooks=options.profile,
                providers=providers,
            )
        if not options.host_steps:
            refuse_host_steps(each.module for modules in lowered for each in modules)
        lowered = [_by_target(modules) for modules in lowered]
        place = partial(
            place_constants,
            [(each.unit, own.program, own.module) for each, made in zip(units, lowered, strict=True) for own in made],
            output.parent,
            identities=identities,
            replaceable=weights,
            free_source=options.free_source,
            code_only=options.code_only,
            room=room,
            early=early,
        )
        # Compilers are other processes: meanwhile this one computes, hashes and writes constants.
        with beside(lambda stopped: place(stopped=stopped)) as placed:
            compiled = [
                CompiledUnit(each.unit, _compile(modules, tools, clock, about=about[each.unit.label]), each.split)
                for each, modules in zip(units, lowered, strict=True)
            ]
        with clock.phase("pack"):
            draft = pack(
                compiled,
                name or compiled[0].unit.entry.name,
                output,
                placed=placed.result(),
                replaceable=weights,
                code_only=options.code_only,
                sources=options.sources,
                description=options.description,
                measured=algorithms.records(),
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
    return BuildReport(
        output, size, names, clock.seconds, reports, cache.hits, cache.misses, checked, on_host, choices,
        algorithms=AlgorithmReport(tuple(algorithms.records()), algorithms.spent, algorithms.problem),
    )  # fmt: skip


def _algorithms(options: BuildOptions, tools: Tools) -> Algorithms:
    threads = tuple(dict.fromkeys(options.tune_threads)) or (len(os.sched_getaffinity(0)),)
    return Algorithms(tools, threads, options.tune_seconds)


def _opt_level(requested: int | None) -> int:
    text = os.environ.get("AOTPACK_OPT_LEVEL") or "3" if requested is None else str(requested)
    if text not in ("1", "2", "3"):
        source = "AOTPACK_OPT_LEVEL" if requested is None else "opt_level"
        raise BuildError(f"{source} is {text!r}", hint="use 1, 2 or 3")
    return int(text)


def _compile(lowered: Sequence[Lowered], tools: Tools, clock: Clock, *, about: str) -> tuple[CompiledModule, ...]:
    compiled: list[CompiledModule] = []
    for target, own in groupby(lowered, lambda each: each.module.target):
        with clock.phase("compile", about + target):
            compiled += compile_modules(list(own), tools, clock.unit)
    return tuple(compiled)


def _by_target(lowered: Sequence[Lowered]) -> list[Lowered]:
    """In the order in which they are compiled and packed."""
    targets = list(dict.fromkeys(each.module.target for each in lowered))
    return sorted(lowered, key=lambda each: targets.index(each.module.target))


@exclusive
def _finish(
    draft: Draft, labels: Sequence[str], targets: Sequence[str], options: BuildOptions, clock: Clock
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
