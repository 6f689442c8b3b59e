"""Runs programs at sizes with implicit assumptions of torch, 0 and 1 first of all.

A trace is made at the sizes of the example. Where a model does something else for a size of 0 or 1 (`squeeze`, a
broadcast, a reduction of nothing), that is in no guard. So the example call is cut to these sizes, one dim after the
other, and what was captured is compared with the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy
import torch

from aotpack.errors import CaptureError
from aotpack.export.ir.program import Program
from aotpack.export.probing.points import admits, fits
from aotpack.export.probing.questions import settled
from aotpack.export.probing.trial import Answer, Trial, example_sizes
from aotpack.export.symbolic_shapes.declared import Declared, Note
from aotpack.export.symbolic_shapes.guards import check_of, dim_symbol
from aotpack.export.tracing.interface import Call
from aotpack.spec import Dim

_SMALL = (0, 1)


def probed(
    program: Program,
    call: Call,
    answer: Answer,
    module: torch.nn.Module,
    *,
    values: bool = True,
    writes: bool = True,
) -> Program:
    """The program, its dims without the sizes 0 and 1 where the model fails or the program differs from it.

    Args:
        program: as captured, before any pass.
        call: the example call.
        answer: the leaves of what the model returns.
        module: whose tensors a call may change; they are put back.
        values: whether tensors have values; otherwise shapes and dtypes alone are compared.
        writes: whether `answer` writes to its arguments where the model does.

    Raises:
        CaptureError: the user asked for such a size by the dim's `min`.
    """
    sizes = example_sizes(program, call)
    declared = call.declared or Declared(())
    trial = Trial(program, call, answer, module, values, writes)
    program = settled(program, trial, sizes)
    for dim in program.signature.dims:
        if dim.name not in sizes:
            continue
        problems: dict[int, str] = {}
        for size in _SMALL:
            if size == sizes[dim.name] or not admits(dim, size):
                continue
            wanted = {**sizes, dim.name: size}
            if not fits(program, wanted):
                continue
            problem = trial.of(program).outcome(wanted).problem
            if problem is not None:
                problems[size] = problem
        program = _without(program, dim, problems, declared.explicit_min)
    _try_least_sizes(program, trial, sizes, declared.bounded)
    return program


def _try_least_sizes(program: Program, trial: Trial, example: Mapping[str, int], promised: frozenset[str]) -> None:
    """Raises CaptureError where the program is wrong for the least sizes of all declared dims at once."""
    dims = [dim for dim in program.signature.dims if dim.name in promised and dim.name in example]
    least = {dim.name: -(-dim.min // dim.multiple_of) * dim.multiple_of for dim in dims}
    sizes = {**example, **least}
    # One dim that differs from the example has been tried already.
    if sum(sizes[name] != example[name] for name in least) < 2 or not fits(program, sizes):
        return
    outcome = trial.of(program).outcome(sizes)
    if not outcome.agrees and not outcome.model_fails:
        shown = ", ".join(f"{name} = {size}" for name, size in least.items())
        raise CaptureError(
            f"the declared sizes {shown} do not work together: {outcome.problem}",
            hint="use a greater min for one of these dims, or make the model do the same for all sizes",
        )


def _without(program: Program, dim: Dim, problems: Mapping[int, str], explicit: frozenset[str]) -> Program:
    """The program for the sizes of the dim that are left."""
    if not problems:
        return program
    if dim.name in explicit:
        size, problem = next(iter(problems.items()))
        raise CaptureError(
            f"dim {dim.name!r} is declared as {dim}, but {dim.name} = {size} does not work: {problem}",
            hint=f"declare min={max(problems) + 1}, or make the model do the same for all sizes",
        )
    notes = [Note(dim.name, f"cannot be {size}: {problem}") for size, problem in problems.items()]
    least = dim.min
    while least in problems:
        least += 1
    checks = program.checks
    if any(size >= least for size in problems):
        # 0 works and 1 does not.
        checks = (*checks, check_of(sympy.Ne(dim_symbol(dim.name), 1)))
    dims = tuple(replace(d, min=least) if d.name == dim.name else d for d in program.signature.dims)
    return replace(
        program,
        signature=replace(program.signature, dims=dims),
        checks=checks,
        notes=(*program.notes, *notes),
    )
