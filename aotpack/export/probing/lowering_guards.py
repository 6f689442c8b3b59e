"""Assumptions of passes and code generation beyond those of the capture.

Both run on the symbols of the capture, and may decide by the sizes of the example: TorchInductor or a pass by itself,
or an operator that is computed on fake tensors on the way. Calls are checked for each such condition, and one that is
false of declared sizes is refused; but not where the answer is the same whenever no tensor of the program has a size
of 0 or 1. Such questions are about layouts, in which these sizes have no part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import sympy

from aotpack.errors import CaptureError, LoweringError
from aotpack.export.ir.dims import dims_of_symbols
from aotpack.export.ir.program import Program
from aotpack.export.probing.points import violations
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.canonical import remainder
from aotpack.export.symbolic_shapes.expressions import write
from aotpack.export.symbolic_shapes.guards import check_of, demands, dim_symbol, implied
from aotpack.export.symbolic_shapes.shape_env import Assumption
from aotpack.spec import Check, Dim


def lowering_checks(program: Program, where: str) -> tuple[Check, ...]:
    """What calls must satisfy on account of guards that came up since the last look at the program's symbols.

    Raises:
        LoweringError: a call cannot be checked for one.
    """
    env = shape_env.graph_environment(program.graph)
    if env is None:
        return ()
    known = _dims_of_symbols(program)
    dims = program.signature.dims
    wanted: list[Assumption] = []
    usual: _Usual | None = None
    added = shape_env.new_guards(env)
    shape_env.mark_guards(env)
    for assumption in added:
        expr = assumption.expr.xreplace(known)
        about_inputs = assumption.expr.free_symbols <= known.keys()
        if not about_inputs or implied(expr, dims, program.checks):
            continue
        usual = _Usual(program, known) if usual is None else usual
        if not usual.holds(assumption.expr):
            wanted.append(Assumption(expr, assumption.origin))
    if not wanted:
        return ()
    try:
        found = demands(dims, wanted, explicit_max=False)
    except CaptureError as error:
        raise LoweringError(
            f"{where} relies on a size: {error}", hint="please report this model; a static dim avoids the problem"
        ) from error
    checks = list(found.checks)
    for before, after in zip(dims, found.dims, strict=True):
        symbol = dim_symbol(before.name)
        conditions = [sympy.Ge(symbol, after.min)] if after.min > before.min else []
        if after.max is not None and after.max != before.max:
            conditions.append(sympy.Le(symbol, after.max))
        if after.multiple_of != before.multiple_of:
            conditions.append(sympy.Eq(remainder(symbol, sympy.Integer(after.multiple_of)), 0))
        checks += [check_of(condition) for condition in conditions]
    for assumption in wanted:
        _refuse_fewer_sizes(program, assumption, where)
    return tuple(check for check in checks if check not in program.checks)


def _refuse_fewer_sizes(program: Program, assumption: Assumption, where: str) -> None:
    """Raises LoweringError where an assumption is false of sizes that the user declared."""
    names = sorted(symbol.name for symbol in assumption.expr.free_symbols)
    if not program.promised.issuperset(names):
        return
    middle = {
        dim.name: max(dim.min, 2) if dim.max is None else min(dim.min + 2, dim.max) for dim in program.signature.dims
    }
    for sizes in violations(program, assumption.expr, middle):
        shown = ", ".join(f"{name} = {sizes[name]}" for name in names)
        raise LoweringError(
            f"{where} needs {write(assumption.expr).text}, which declared sizes violate: {shown}{assumption.origin}",
            hint="declare narrower ranges, or change the model so that it takes the same path for all sizes",
        )


class _Usual:
    """What is true when no size in a program is 0 or 1."""

    def __init__(self, program: Program, known: Mapping[sympy.Symbol, sympy.Expr]) -> None:
        self._known = dict(known)
        # Sizes that do not bound a dim stand for themselves.
        self._own: dict[sympy.Expr, sympy.Symbol] = {}
        dims = program.signature.dims
        tensors = [node.meta.get("val") for node in program.graph.nodes]
        sizes = [shape_env.expression(size) for tensor in tensors for size in getattr(tensor, "shape", ())]
        for size in dict.fromkeys(sizes):
            if not size.free_symbols or not size.free_symbols <= known.keys():
                continue
            with contextlib.suppress(CaptureError):
                found = demands(dims, [Assumption(sympy.Ge(size.xreplace(known), 2))], explicit_max=False)
                dims = found.dims
                if found.checks:
                    self._own[size] = dim_symbol(f"size_{len(self._own)}")
        self._dims = (*dims, *(Dim(symbol.name, 2) for symbol in self._own.values()))

    def holds(self, condition: sympy.Basic) -> bool:
        """Whether it follows; `condition` is about torch's symbols."""
        spelled = [condition]
        if isinstance(condition, sympy.Rel):
            spelled.append(type(condition)(condition.lhs - condition.rhs, 0))
        return any(implied(spelling.xreplace(self._own).xreplace(self._known), self._dims) for spelling in spelled)


def _dims_of_symbols(program: Program) -> Mapping[sympy.Symbol, sympy.Expr]:
    """torch's symbols in terms of the signature's dims."""
    return {symbol: ref.mul * dim_symbol(ref.dim) + ref.add for symbol, ref in dims_of_symbols(program).items()}
