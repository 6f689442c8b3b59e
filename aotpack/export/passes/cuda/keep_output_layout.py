"""Keeps eager's strides on the results: a result whose layout the passes changed is copied once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.passes.patterns.results import restore_layouts

aten = torch.ops.aten


def keep_output_layout(program: Program) -> Program:
    """Gives results the strides that were captured."""
    return restore_layouts(program, _copy)


def _copy(rewriter: Rewriter, node: torch.fx.Node, order: Sequence[int], before: torch.fx.Node) -> torch.fx.Node:
    # In the order of memory a copy is contiguous; its view has the dims of the result.
    dense = rewriter.call(aten.permute.default, (node, list(order)), before)
    copied = rewriter.call(aten.clone.default, (dense,), before, memory_format=torch.contiguous_format)
    return rewriter.call(aten.permute.default, (copied, [list(order).index(dim) for dim in range(len(order))]), before)
