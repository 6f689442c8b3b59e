"""The layout of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, has_order
from aotpack.export.passes.runner import propagate

# Copies a value in front of a node, with its dims in memory in the given order.
Copy = Callable[[Rewriter, torch.fx.Node, Sequence[int], torch.fx.Node], torch.fx.Node]


def restore_layouts(program: Program, copy: Copy) -> Program:
    """Compares the strides of every result with the captured layout and restores it where it differs."""
    propagate(program)
    rewriter = Rewriter(program)
    output = rewriter.graph.output_node()
    returned: Any = output.args[0]
    results = list(returned)
    for index, (node, spec) in enumerate(zip(results, program.signature.outputs, strict=True)):
        if not isinstance(node, torch.fx.Node) or has_order(node.meta["val"], spec.order):
            continue
        rewriter.report(node, f"copied {spec.name} into eager's layout")
        results[index] = copy(rewriter, node, spec.order, output)
        rewriter.changed += 1
    output.args = (tuple(results),)
    return rewriter.finish("keep-output-layout", f"restored the layout of {rewriter.changed} results")
