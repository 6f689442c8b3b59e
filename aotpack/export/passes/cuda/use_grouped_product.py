"""Products of groups of rows, as mixtures of experts have them, become calls of this project's kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of

_ROWS = torch.ops.aotpack.grouped_mm.default
_OUTER = torch.ops.aotpack.grouped_outer.default


def use_grouped_product(program: Program) -> Program:
    """Replaces `aotpack::grouped_mm` and `aotpack::grouped_outer`, which run on the host, by kernels of the device."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import grouped

    rewriter = Rewriter(program)
    for node in rewriter.nodes(_ROWS, _OUTER):
        if not _has_kernel(node, grouped):
            continue
        rewriter.report(node, "grouped product by our kernel")
        operator = grouped.ROWS_OPERATOR if node.target is _ROWS else grouped.OUTER_OPERATOR
        rewriter.replace(node, rewriter.call(operator, _operands(node), node))
    return rewriter.finish("use-grouped-product", f"{rewriter.changed} grouped products by our kernels")


def _has_kernel(node: torch.fx.Node, grouped: Any) -> bool:
    a, b, ends = _operands(node)
    if dtype_of(node) not in grouped.DTYPES or not dtype_of(a) == dtype_of(b) == dtype_of(node):
        return False
    groups = shape_of(ends)[0]
    if not isinstance(groups, int) or not 0 < groups <= grouped.MOST_GROUPS:
        return False
    # Another number of ends is an error, which the host reports.
    return node.target is _OUTER or shape_of(b)[0] == groups


def _operands(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node, torch.fx.Node]:
    a, b, ends = bound_arguments(node).values()
    return a, b, ends
