"""Keeps eager's strides on the results: a result whose layout the passes changed is copied once."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, has_order
from aotpack.export.passes.runner import propagate


def keep_output_layout(program: Program) -> Program:
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
        results[index] = rewriter.call(ops.to_layout, (node, list(spec.order)), output)
        rewriter.changed += 1
    output.args = (tuple(results),)
    return rewriter.finish("keep-output-layout", f"restored the layout of {rewriter.changed} results")
