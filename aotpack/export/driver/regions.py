"""Regions in a build: the blocks that a program repeats become stages, of which each distinct one is compiled once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from aotpack.archive.manifest import MAIN_DEVICE
from aotpack.errors import BuildError
from aotpack.export.blocks.find import Found, Refused, find_blocks
from aotpack.export.blocks.instances import Instance, Outlined, is_function
from aotpack.export.ir.program import Change, PassReport, Program
from aotpack.export.partition.split import SplitProgram, settled, split_at

OFF, MARKED, AUTO = CHOICES = ("off", "marked", "auto")


@dataclass(frozen=True)
class Regions:
    """A program as stages, some of which run the code of others.

    Attributes:
        program: it, with a report of the blocks.
        split: its stages; those that are compiled are settled. None: it has no blocks, and is compiled as a whole.
        instances: by index of a stage, the block that it is of another stage's code; the index of that one.
    """

    program: Program
    split: SplitProgram | None
    instances: dict[int, tuple[Instance, int]]

    def is_shared(self, stage: int) -> bool:
        """Whether other stages run the code of this one."""
        return any(model == stage for _, model in self.instances.values())


def check_regions(chosen: str) -> None:
    """Raises BuildError where the option has no such value."""
    if chosen not in CHOICES:
        raise BuildError(f"regions is {chosen!r}", hint=f"use one of {', '.join(map(repr, CHOICES))}")


def regions_of(program: Program, chosen: str) -> Regions:
    """The repeated blocks of a program before its passes."""
    found = Found(()) if chosen == OFF else find_blocks(program, modules=chosen == AUTO)
    if not found.blocks:
        told = program.with_report(_report([], {}, found.refused)) if found.refused else program
        return Regions(told, None, {})
    paths = {2 * number + 1: block.path for number, block in enumerate(found.blocks)}
    split = split_at(program, found.stages(program), [MAIN_DEVICE] * (2 * len(found.blocks) + 1))
    models: dict[Hashable, tuple[int, Outlined]] = {}
    instances: dict[int, tuple[Instance, int]] = {}
    made = list(split.stages)
    for index, stage in enumerate(split.stages):
        # What lies between blocks may be alike too.
        if is_function(stage.program):
            own = Outlined.of(stage)
            known = models.setdefault(own.structure.key, (index, own))
            if known[0] != index:
                instances[index] = (Instance.of(own, known[1]), known[0])
                made[index] = instances[index][0].stage
                continue
        made[index] = settled(stage)
    if not any(stage.index in paths for index, stage in enumerate(split.stages) if index in instances):
        return Regions(program, None, {})
    names = [paths.get(stage.index, "") for stage in split.stages]
    program = program.with_report(_report(names, instances, found.refused))
    made = [replace(stage, program=replace(stage.program, reports=program.reports)) for stage in made]
    return Regions(program, replace(split, stages=tuple(made)), instances)


def _report(names: list[str], instances: dict[int, tuple[Instance, int]], refused: tuple[Refused, ...]) -> PassReport:
    calls = [name for name in names if name]
    shared = {names[index]: names[model] or "other calls" for index, (_, model) in instances.items() if names[index]}
    compiled = len(calls) - len(shared)
    changes = [Change(name, f"runs the code of {model}") for name, model in shared.items()]
    changes += [Change(each.path, f"is compiled in place: {each.reason}") for each in refused]
    summary = f"compiled {_counted(compiled)} for {len(calls)} calls" if calls else "found no block to compile once"
    return PassReport("regions", summary, tuple(changes))


def _counted(blocks: int) -> str:
    return "1 block" if blocks == 1 else f"{blocks} blocks"
