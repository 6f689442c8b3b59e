"""Preparation of a build: the passes make of each unit what is to be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotpack.costs.costs import using_costs
from aotpack.export.backends.backend import Backend
from aotpack.export.driver.algorithms import Algorithms
from aotpack.export.driver.backends import by_backend, on_host
from aotpack.export.driver.clock import Clock
from aotpack.export.driver.options import BuildOptions
from aotpack.export.driver.pipeline import select
from aotpack.export.driver.regions import OFF, Regions, regions_of
from aotpack.export.driver.stages import Partitioner, refuse_unused, stages_of
from aotpack.export.driver.user_passes import UserPass, warn_of_unused, with_unused, with_user_passes
from aotpack.export.ir import origins
from aotpack.export.ir.program import Program
from aotpack.export.ir.units import DEFAULT, Unit, units_of
from aotpack.export.partition.split import SplitProgram
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.runner import Pass, Step, run_passes
from aotpack.export.torch_compat.patches import exclusive
from aotpack.export.weights.identity import Identities, share_state
from aotpack.export.weights.updatable import Replaceable, replaceable
from aotpack.export.weights.values import refuse_missing_values


@dataclass(frozen=True)
class Piece:
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
class Prepared:
    """A unit after the passes that are true on every device, its stages if it has several, and what is compiled."""

    unit: Unit
    pieces: tuple[Piece, ...]
    split: SplitProgram | None = None


@exclusive
def prepare(
    program: Program | Sequence[Program],
    targets: Sequence[str],
    options: BuildOptions,
    partitioning: Partitioner | None,
    passes: Sequence[UserPass],
    identities: Identities,
    clock: Clock,
    algorithms: Algorithms,
) -> tuple[list[Prepared], Replaceable | None]:
    """What is to be compiled, after all passes, and what makes its weights replaceable if that is wanted."""
    units = units_of([program] if isinstance(program, Program) else list(program))
    refuse_unused(partitioning, units)
    algorithms.begin([unit.program for unit in units], targets)
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
                pieces = _in_regions(regions.split, regions, common, backends, algorithms)
                prepared.append(Prepared(replace(unit, program=regions.program), pieces, regions.split))
                continue
            program = with_unused(passes, run_passes(regions.program, common))
            origins.mark(program)
            split = stages_of(partitioning, program)
            stages = [program] if split is None else [stage.program for stage in split.stages]
            pieces = tuple(
                Piece(backend, _after_passes(stage, own, group, algorithms), group, number)
                for backend, own, group in backends
                for number, stage in enumerate(stages)
            )
            prepared.append(Prepared(replace(unit, program=program), pieces, split))
        warn_of_unused(passes, [piece.program for each in prepared for piece in each.pieces])
        if not options.updatable:
            return prepared, None
        weights = replaceable([piece.program for each in prepared for piece in each.pieces], identities)
        if weights.fold is not None:
            fold = tuple(Piece(backend, weights.fold, group) for backend, group in on_host(targets))
            prepared.append(Prepared(Unit(weights.fold, DEFAULT, (), weights.fold), fold))
    return prepared, weights


def _in_regions(
    split: SplitProgram,
    regions: Regions,
    common: Sequence[Step],
    backends: Sequence[tuple[Backend, Sequence[Pass], tuple[str, ...]]],
    algorithms: Algorithms,
) -> tuple[Piece, ...]:
    """The stages of a program, of whose blocks each distinct one goes through the passes once."""
    stages = [stage.program for stage in split.stages]
    own = {number: run_passes(stage, common) for number, stage in enumerate(stages) if number not in regions.instances}
    pieces: list[Piece] = []
    for backend, passes, group in backends:
        made = {number: _after_passes(program, passes, group, algorithms) for number, program in own.items()}
        for number in range(len(stages)):
            if number in made:
                pieces.append(Piece(backend, made[number], group, number, shared=regions.is_shared(number)))
                continue
            instance, model = regions.instances[number]
            program, names = instance.program(made[model]), instance.names(made[model])
            pieces.append(Piece(backend, program, group, number, model, names))
    return tuple(pieces)


def _after_passes(program: Program, passes: Sequence[Step], targets: Sequence[str], algorithms: Algorithms) -> Program:
    """The program after the passes of a backend, which choose algorithms for all of these targets."""
    with using_costs(algorithms.costs(targets)):
        return run_passes(program, passes)
