"""Decides which matrix determinants and solutions factor.

Where a matrix is contiguous and real, aten may factor its transpose, which lies the way that LAPACK wants. The
backwards, traced when the model was captured, use the factors accordingly: what was chosen by the strides of then must
not be chosen again by others, which later passes may give.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments
from aotpack.export.ops import linalg

aten = torch.ops.aten


def settle_factors(program: Program) -> Program:
    """Replaces `_linalg_det`, `_linalg_slogdet` and `_linalg_solve_ex` by operators that accept what to factor."""
    rewriter = Rewriter(program)
    for op, ours in ((aten._linalg_det.default, linalg.det), (aten._linalg_slogdet.default, linalg.slogdet)):
        for node in rewriter.nodes(op):
            a: Any = node.args[0]
            if linalg.factors_transpose(op, a.meta["val"]):
                a = rewriter.call(aten.transpose.int, (a, -2, -1), node)
            rewriter.replace(node, rewriter.call(ours, (a,), node))
    for node in rewriter.nodes(aten._linalg_solve_ex.default):
        _settle_solve(rewriter, node)
    return rewriter.finish("settle-factors", f"settled {rewriter.changed} factorizations")


def _settle_solve(rewriter: Rewriter, node: torch.fx.Node) -> None:
    arguments = bound_arguments(node)
    a, b, left = arguments["A"], arguments["B"], arguments["left"]
    if arguments["check_errors"]:
        return  # from a call of torch.linalg.solve_ex, by no backward
    x = a.meta["val"]
    vectors = linalg.solves_vectors(x, b.meta["val"])
    if vectors:
        b = rewriter.call(aten.unsqueeze.default, (b, -1), node)
    solved = rewriter.call(
        linalg.solve, (a, b, vectors or left, linalg.factors_transpose(aten._linalg_solve_ex.default, x)), node
    )
    for user in list(node.users):
        if vectors and user.target is operator.getitem and user.args[1] == 0:
            column = rewriter.call(operator.getitem, (solved, 0), user)
            rewriter.replace(user, rewriter.call(aten.squeeze.dim, (column, -1), user))
    rewriter.replace(node, solved)
