"""Sizes 0 and 1, tried out: what torch takes for granted of them without saying so.

A trace is made at the sizes of the example. Where a model does something else for a size of 0 or 1 (`squeeze`, a
broadcast, a reduction of nothing), that is in no guard. So the example call is cut to these sizes, one dim after the
other, and what was captured is compared with the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy
import torch

from aotpack.archive.code import UndefinedError, evaluate
from aotpack.errors import CaptureError
from aotpack.export.capture.interface import Call
from aotpack.export.program import Program
from aotpack.export.sizes.declared import Note
from aotpack.export.sizes.guards import check_of, dim_symbol
from aotpack.export.sizes.trial import Answer, Trial, inputs_of, resolved
from aotpack.spec import Dim, DimRef

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
    sizes = _example_sizes(program, call)
    explicit = call.declared.explicit_min if call.declared is not None else frozenset()
    for dim in program.signature.dims:
        if dim.name not in sizes:
            continue
        problems: dict[int, str] = {}
        for size in _SMALL:
            if size == sizes[dim.name] or not _admits(dim, size):
                continue
            wanted = {**sizes, dim.name: size}
            if not _fits(program, wanted):
                continue
            problem = Trial(program, call, answer, module, values, writes).problem(wanted)
            if problem is not None:
                problems[size] = problem
        program = _without(program, dim, problems, explicit)
    return program


def _admits(dim: Dim, size: int) -> bool:
    return dim.min <= size and (dim.max is None or size <= dim.max) and size % dim.multiple_of == 0


def _fits(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether a call of these sizes is one that the program takes."""
    try:
        shapes = [resolved(element, sizes) for spec in program.signature.inputs for element in spec.shape]
        return min(shapes, default=0) >= 0 and all(evaluate(check.code, sizes) for check in program.checks)
    except UndefinedError:
        return False


def _example_sizes(program: Program, call: Call) -> dict[str, int]:
    """The value of each dim in the example call."""
    found: dict[str, int] = {}
    for spec, value in zip(program.signature.inputs, inputs_of(call), strict=True):
        if spec.dim is not None:
            found[spec.dim] = int(value)
        for axis, element in enumerate(spec.shape):
            if isinstance(element, DimRef):
                found.setdefault(element.dim, (value.shape[axis] - element.add) // element.mul)
    return found


def _without(program: Program, dim: Dim, problems: Mapping[int, str], explicit: frozenset[str]) -> Program:
    """The program for the sizes of the dim that are left."""
    if not problems:
        return program
    if dim.name in explicit:
        size, problem = next(iter(problems.items()))
        raise CaptureError(
            f"dim {dim.name!r} is declared as {dim}, but {dim.name} = {size} does not work: {problem}",
            hint=f"give the dim min={max(problems) + 1}, or let the model do the same for all sizes",
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
