"""Keeps eager's strides on the results: a result whose layout the passes changed is copied once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.passes.patterns.results import restore_layouts


def keep_output_layout(program: Program) -> Program:
    """Gives results the strides that were captured."""
    return restore_layouts(program, _copy)


def _copy(rewriter: Rewriter, node: torch.fx.Node, order: Sequence[int], before: torch.fx.Node) -> torch.fx.Node:
    return rewriter.call(ops.to_layout, (node, list(order)), before)
