"""Turns views into reshapes where kernels may change strides, so that a view never depends on a layout."""

from __future__ import annotations

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, is_contiguous

aten = torch.ops.aten


def views_to_reshapes(program: Program) -> Program:
    """`view` becomes `reshape`; `as_strided` reads a contiguous copy when its source's strides may change."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.view.default, aten._unsafe_view.default):
        rewriter.report(node, f"{node.name} may copy")
        node.target = aten.reshape.default
        rewriter.changed += 1
    for node in rewriter.nodes(aten.as_strided.default):
        source = node.args[0]
        if isinstance(source, torch.fx.Node) and source.op == "call_function" and is_contiguous(source.meta["val"]):
            rewriter.report(node, f"{node.name} reads a contiguous copy")
            node.args = (
                rewriter.call(aten.clone.default, (source,), node, memory_format=torch.contiguous_format),
                *node.args[1:],
            )
            rewriter.changed += 1
    return rewriter.finish("views-to-reshapes", f"freed {rewriter.changed} views of their dependence on strides")
