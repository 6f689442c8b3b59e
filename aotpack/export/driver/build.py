"""The build: a captured Program becomes an archive."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aotpack.archive import check_output
from aotpack.building.cache import BuildCache
from aotpack.building.processes import ProcessGroup
from aotpack.errors import UnsupportedOperatorError, UnsupportedTargetError
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.compile import compile_module, kernels_ahead
from aotpack.export.backends.cpu.lower import Lowered, kernel_shims, lower, used_halves
from aotpack.export.backends.cpu.toolchain import Compiler
from aotpack.export.backends.unsupported_operators import OperatorUse, refuse
from aotpack.export.diagnostics.internal_errors import callers_own, reported
from aotpack.export.driver import self_check
from aotpack.export.driver.pack import CompiledUnit, Draft, pack
from aotpack.export.driver.pipeline import select
from aotpack.export.driver.self_check import CheckReport
from aotpack.export.ir.program import PassReport, Program
from aotpack.export.ir.units import DEFAULT, Unit, units_of
from aotpack.export.passes.runner import run_passes
from aotpack.export.tracing.autocast import no_autocast
from aotpack.export.weights.identity import Identities, share_state
from aotpack.export.weights.updatable import Replaceable, replaceable
from aotpack.spec import Target

Progress = Callable[[str, float | None, str], None]


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Attributes:
        check: run the example calls of the finished archive, in a process of their own, and compare the results with
            eager's; the build fails where they differ.
        goldens: store the example call and eager's answer in the archive, for `aotpack verify`.
        cache_dir: folder of the build cache; by default `$AOTPACK_CACHE_DIR` or the XDG cache folder. A build that adds
            files to it then removes those unused for longest, beyond `$AOTPACK_CACHE_SIZE` (5 GB).
        compiler: the C++ compiler, a path or a command such as `ccache g++`; by default $CXX, g++, clang++ or c++.
        jobs: compiler processes at a time; by default one per core.
        without: names of passes to leave out (`aotpack.export.driver.pipeline.switchable`), or `"all"`.
        updatable: keep the original weights, and the folding as an entry of its own, so that the runtime can replace
            weights (`Model.update_weights`). Otherwise the archive is frozen: folded and packed weights alone.
        free_source: free the source module's tensors as soon as they are packed. The module cannot be used any more,
            also when the build fails; `program` neither.
    """

    check: bool = True
    goldens: bool = True
    cache_dir: str | os.PathLike[str] | None = None
    compiler: str | None = None
    jobs: int | None = None
    without: Collection[str] = ()
    updatable: bool = False
    free_source: bool = False


@dataclass(frozen=True)
class BuildReport:
    """What a build made, how long each phase took (seconds), what the passes did (entry → variant → passes), and what
    the archive answered to its own example calls.
    """

    path: Path
    size: int
    targets: tuple[str, ...]
    seconds: dict[str, float]
    passes: dict[str, dict[str, tuple[PassReport, ...]]]
    cache_hits: int
    cache_misses: int
    check: CheckReport

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        result = dataclasses.asdict(self)
        result["path"] = str(self.path)
        return result


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
def build_archive(
    program: Program | Sequence[Program],
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    targets: Sequence[str] | None = None,
    options: BuildOptions | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Builds an archive at `output`: all or nothing, an old file stays until the new one is complete.

    Args:
        program: from `aot_export` or `load_exported`; or several, with different names of their entries. What these
            have in common is stored once: weights, and state, so that one entry reads in a context what another has
            written there. What one of them writes to is state in all.
        output: path of the archive.
        name: the model's name; by default the first program's.
        targets: what to compile for, e.g. `["x86-64-v3", "x86-64-v4"]`; by default this host's best.
        options: see `BuildOptions`.
        progress: called with (phase, None, detail) when a phase begins and (phase, seconds, detail) when it ends.
            Phases: passes, lower, compile, pack, check. The detail names the entry and variant where there are several.

    Raises:
        UnsupportedOperatorError: operators without a kernel, all of them at once, before the model's code is compiled.
        GoldenError: the archive does not answer the example call as eager did.
        BuildError: any other failure, named by its step.
        InternalError: a fault of aotpack, with the place in the model as far as it is known.
        UnsupportedTargetError: an unknown target.
        OSError: the output cannot be written.
    """
    options = options or BuildOptions()
    names = _target_names(targets)
    output = Path(output)
    check_output(output)
    cache = BuildCache(Path(options.cache_dir) if options.cache_dir else None)
    clock = _Clock(progress)
    identities = Identities()
    # An error, or Ctrl-C, kills every compiler of this build.
    with ProcessGroup() as group, no_autocast():
        compiler = toolchain.find_compiler(options.compiler).within(group)
        units, weights = _prepare(program, options, identities, clock)
        if options.check:
            self_check.prepare()
        about = {unit.label: f"{unit.label} " if len(units) > 1 else "" for unit in units}
        lowered = _lower_all(units, names, cache, compiler, clock, weights_known=weights is None, about=about)
        compiled = [
            CompiledUnit(
                unit, modules, _compile(modules, cache, compiler, clock, options.jobs, about=about[unit.label])
            )
            for unit, modules in zip(units, lowered, strict=True)
        ]
        with clock.phase("pack"):
            draft = pack(
                compiled,
                name or units[0].entry.name,
                output,
                identities=identities,
                replaceable=weights,
                free_source=options.free_source,
                compiler_version=compiler.version,
            )
    # What folds weights is no entry that users call.
    labels = [unit.label for unit in units if weights is None or unit.entry is not weights.fold]
    size, checked = _finish(draft, labels, options, clock)
    if cache.misses:
        cache.trim()
    passes: dict[str, dict[str, tuple[PassReport, ...]]] = {}
    for unit in units:
        passes.setdefault(unit.name, {})[unit.variant] = unit.program.reports
    return BuildReport(output, size, names, clock.seconds, passes, cache.hits, cache.misses, checked)


def _prepare(
    program: Program | Sequence[Program], options: BuildOptions, identities: Identities, clock: _Clock
) -> tuple[list[Unit], Replaceable | None]:
    """What is to be compiled, after all passes, and what makes its weights replaceable if that is wanted."""
    units = units_of([program] if isinstance(program, Program) else list(program))
    passes = select(options.without)
    with clock.phase("passes"):
        programs = [run_passes(shared, passes) for shared in share_state([unit.program for unit in units])]
        units = [replace(unit, program=part) for unit, part in zip(units, programs, strict=True)]
        if not options.updatable:
            return units, None
        weights = replaceable(programs, identities)
        if weights.fold is not None:
            units.append(Unit(weights.fold, DEFAULT, (), weights.fold))
    return units, weights


def _lower_all(
    units: Sequence[Unit],
    targets: Sequence[str],
    cache: BuildCache,
    compiler: Compiler,
    clock: _Clock,
    *,
    weights_known: bool,
    about: Mapping[str, str],
) -> list[tuple[Lowered, ...]]:
    """All units' sources, before any is compiled: operators without a kernel are told for all of them at once."""
    lowered: list[tuple[Lowered, ...]] = []
    uses: list[OperatorUse] = []
    for unit in units:
        try:
            lowered.append(
                _lower(
                    unit.program, targets, cache, compiler, clock, weights_known=weights_known, about=about[unit.label]
                )
            )
        except UnsupportedOperatorError as error:
            uses += [OperatorUse(*use) for use in error.uses]
    refuse(uses)
    return lowered


def _lower(
    program: Program,
    targets: Sequence[str],
    cache: BuildCache,
    compiler: Compiler,
    clock: _Clock,
    *,
    weights_known: bool,
    about: str,
) -> tuple[Lowered, ...]:
    lowered = []
    with kernels_ahead(kernel_shims(program), targets, cache, compiler=compiler, halves=used_halves(program)):
        for target in targets:
            with clock.phase("lower", about + target):
                lowered.append(lower(program, target, weights_known=weights_known))
    return tuple(lowered)


def _compile(
    lowered: Sequence[Lowered], cache: BuildCache, compiler: Compiler, clock: _Clock, jobs: int | None, *, about: str
) -> tuple[bytes, ...]:
    objects = []
    for module in lowered:
        with clock.phase("compile", about + module.target):
            objects.append(compile_module(module, cache, compiler=compiler, jobs=jobs, progress=clock.unit))
    return tuple(objects)


def _finish(draft: Draft, labels: Sequence[str], options: BuildOptions, clock: _Clock) -> tuple[int, CheckReport]:
    """Writes the archive, checks it, and puts it in its place; its size, and what the check showed."""
    checked = CheckReport(skipped="check=False", unchecked=tuple(labels))
    with clock.phase("pack"):
        staged, examples = draft.stage(goldens=options.goldens)
    with staged:
        if options.check:
            with clock.phase("check"):
                checked = self_check.check(staged.path, examples, labels)
        if not checked.open or not options.goldens:
            staged.commit()
            return staged.size, checked
    # `aotpack verify` would take another answer that is as right for a wrong one.
    with clock.phase("pack"), draft.stage(goldens=True, without=tuple(checked.open))[0] as staged:
        staged.commit()
        return staged.size, checked


def _target_names(targets: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(targets, str):
        raise UnsupportedTargetError(f"targets is the string {targets!r}", hint=f"give a list: [{targets!r}]")
    return tuple(dict.fromkeys(Target.buildable(target).name for target in (targets or ["native"])))
