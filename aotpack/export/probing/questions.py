"""Tests the assumptions of a trace that the user did not declare: the model is called with sizes that violate them.

A trace decides by the sizes of the example. What operators ask of sizes is often about layouts that make no difference
to results: where the model works and what was captured answers the same, such a condition is dropped. Where the model
fails, calls are checked for it, for eager would fail in them too. Where the model works and what was captured does not
answer the same, or is not known to, declared sizes would be refused: that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy

from aotpack.errors import CaptureError
from aotpack.export.ir.program import Program
from aotpack.export.probing.points import predicate, violations
from aotpack.export.probing.trial import Outcome, Trial, example_sizes, is_input
from aotpack.export.symbolic_shapes.declared import Declared, Question
from aotpack.export.symbolic_shapes.expressions import write
from aotpack.export.symbolic_shapes.guards import demands
from aotpack.export.symbolic_shapes.shape_env import Assumption, Origin
from aotpack.export.tracing.interface import Call

_HINT = (
    "declare the dims so that it always holds (one Dim where sizes are equal, 2*n where they are multiples, narrower "
    "ranges), or change the model so that it takes the same path for all sizes"
)


def settled(program: Program, trial: Trial, example: Mapping[str, int]) -> Program:
    """The program without questions: with the checks that are needed, and without those that are not.

    Args:
        program: as captured.
        trial: of this program.
        example: the sizes of the example call.

    Raises:
        CaptureError: the model works for declared sizes that the program is not right for.
    """
    declared = trial.call.declared or Declared(())
    doubts = [question for question in program.questions if question.doubtful]
    for question in doubts:
        program = _doubt_settled(program, question, [q.condition for q in doubts], trial, declared, example)
    for question in program.questions:
        if not question.doubtful and _all_declared(question.condition, declared):
            _refuse_if_eager_works(program, question, trial)
    return replace(program, questions=())


def _doubt_settled(
    program: Program,
    question: Question,
    others: list[sympy.Basic],
    trial: Trial,
    declared: Declared,
    example: Mapping[str, int],
) -> Program:
    points = violations(program, question.condition, example, preferred=others)
    if points or predicate(question.condition) is not None:
        outcomes = [(sizes, trial.of(program).outcome(sizes)) for sizes in points]
        if all(outcome.agrees for _, outcome in outcomes):
            # Nothing violates it, or nothing is different where it is violated.
            return program
        if _all_declared(question.condition, declared):
            for sizes, outcome in outcomes:
                if not outcome.model_fails and not outcome.agrees:
                    raise _refusal(question, sizes, outcome)
    known = Origin(question.where.removeprefix("\n  at ") or None)
    added = demands(
        program.signature.dims,
        [Assumption(question.condition, known)],
        explicit_min=declared.explicit_min,
        bounded=declared.bounded,
    )
    return replace(
        program,
        signature=replace(program.signature, dims=added.dims),
        checks=tuple({check.text: check for check in (*program.checks, *added.checks)}.values()),
        notes=(*program.notes, *added.notes),
    )


def _refuse_if_eager_works(program: Program, question: Question, trial: Trial) -> None:
    program = _freed(program, trial.call)
    for sizes in violations(program, question.condition, example_sizes(program, trial.call)):
        outcome = trial.of(program).outcome(sizes)
        if not outcome.model_fails:
            raise _refusal(question, sizes, outcome)


def _refusal(question: Question, sizes: Mapping[str, int], outcome: Outcome) -> CaptureError:
    names = sorted(symbol.name for symbol in question.condition.free_symbols)
    shown = ", ".join(f"{name} = {sizes[name]}" for name in names)
    how = f" ({outcome.problem})" if question.doubtful and outcome.problem is not None else ""
    return CaptureError(
        f"the captured program is correct only if {write(question.condition).text}, but the model also works for "
        f"{shown}{how}{question.where}",
        hint=_HINT,
    )


def _all_declared(condition: sympy.Basic, declared: Declared) -> bool:
    return {symbol.name for symbol in condition.free_symbols} <= declared.bounded


def _freed(program: Program, call: Call) -> Program:
    """The program with all dims as the user declared them, also those that it has made expressions of others."""
    if call.declared is None:
        return program
    known = {dim.name for dim in program.signature.dims}
    missing = [dim for name, dim in call.declared.dims.items() if name not in known]
    leaves = call.leaves()
    sizes = [said for i, said in enumerate(call.declared.sizes) if is_input(call, i, leaves[i])]
    inputs = [
        replace(spec, shape=tuple(said.get(axis, element) for axis, element in enumerate(spec.shape)))
        for spec, said in zip(program.signature.inputs, sizes, strict=True)
    ]
    signature = replace(program.signature, dims=(*program.signature.dims, *missing), inputs=tuple(inputs))
    return replace(program, signature=signature)
