"""The layout of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import calls_graphs
from aotpack.export.ir.rewriter import Rewriter, has_order
from aotpack.export.passes.inner_graphs import promised_layouts
from aotpack.export.passes.runner import propagate
from aotpack.export.tracing.interface import memory_order

# Copies a value in front of a node, with its dims in memory in the given order.
Copy = Callable[[Rewriter, torch.fx.Node, Sequence[int], torch.fx.Node], torch.fx.Node]


def restore_layouts(program: Program, copy: Copy) -> Program:
    """Compares the strides of every result, and of operands of graphs inside, with the captured layout and restores it
    where it differs.
    """
    propagate(program)
    rewriter = Rewriter(program)
    output = rewriter.graph.output_node()
    returned: Any = output.args[0]
    results = list(returned)
    for index, (node, spec) in enumerate(zip(results, program.signature.outputs, strict=True)):
        value = node.meta["val"] if isinstance(node, torch.fx.Node) else None
        if not isinstance(value, torch.Tensor) or has_order(value, spec.order):
            continue
        rewriter.report(node, f"copied {spec.name} into eager's layout")
        results[index] = copy(rewriter, node, spec.order, output)
        rewriter.changed += 1
    output.args = (tuple(results),)
    for call in [node for node in rewriter.graph.nodes if calls_graphs(node)]:
        for operand, captured in promised_layouts(call):
            order = memory_order(captured)
            if not has_order(operand.meta["val"], order) and has_order(captured, order):
                call.replace_input_with(operand, copy(rewriter, operand, order, call))
                rewriter.changed += 1
    return rewriter.finish("keep-output-layout", f"restored the layout of {rewriter.changed} results")
