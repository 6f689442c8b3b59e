"""Passes of the user in a build: where they run, and those that change nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from aotpack.errors import BuildError
from aotpack.export.diagnostics.internal_errors import callers_own
from aotpack.export.driver.pipeline import PASSES
from aotpack.export.ir.program import PassReport, Program
from aotpack.export.passes.runner import Pass, Step
from aotpack.export.rewriting.rewrite import Rewrite

UserPass = Callable[[Program], Program]
"""A function of a program that returns the changed program, or the same one."""

# Calls are canonical and free of what has no effect, and no weight is folded into another yet.
_AFTER = frozenset({"canonicalize", "settle-factors", "remove-dropout", "remove-noops"})


def with_user_passes(common: Sequence[Pass], passes: Sequence[UserPass]) -> tuple[Step, ...]:
    """The passes for all devices with those of the user in their place.

    Raises:
        BuildError: a pass is no function, or has the name of another.
    """
    names = {step.name for step in PASSES}
    steps: list[Step] = []
    for each in passes:
        if not callable(each):
            raise BuildError(f"a pass is a {type(each).__name__}", hint="passes are functions of a Program")
        name = getattr(each, "__name__", type(each).__name__)
        if name in names:
            raise BuildError(f"two passes have the name {name!r}", hint="rename one: rewrite_pattern(..., name=...)")
        names.add(name)
        steps.append(_step(each, name))
    place = max((number + 1 for number, step in enumerate(common) if step.name in _AFTER), default=0)
    return (*common[:place], *steps, *common[place:])


def with_unused(passes: Sequence[UserPass], program: Program) -> Program:
    """The program whose reports also name the rewrites that matched nothing."""
    for each in _unused(passes, [program]):
        program = program.with_report(PassReport(each.name, f"{each.summary} Matches nothing."))
    return program


def warn_of_unused(passes: Sequence[UserPass], programs: Sequence[Program]) -> None:
    """Warns of rewrites that matched nothing in any program."""
    for each in _unused(passes, programs):
        warnings.warn(f"the rewrite {each.name} matches nothing in this model", UserWarning, stacklevel=2)


def _unused(passes: Sequence[UserPass], programs: Sequence[Program]) -> list[Rewrite]:
    changed = {report.name for program in programs for report in program.reports if report.changes}
    return [each for each in passes if isinstance(each, Rewrite) and each.name not in changed]


def _step(given: UserPass, name: str) -> Step:
    def step(program: Program) -> Program:
        if isinstance(given, Rewrite):
            return given.step(program)
        with callers_own():
            return given(program)

    step.__name__ = name
    return step
