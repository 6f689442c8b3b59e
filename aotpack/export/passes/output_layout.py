"""Keeps eager's strides on the results: a result whose layout the passes changed is copied once."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.editing import Editor, has_order
from aotpack.export.program import Program
from aotpack.export.runner import propagate


def keep_output_layout(program: Program) -> Program:
    """Compares the strides of every result with the captured layout and restores it where it differs."""
    propagate(program)
    editor = Editor(program)
    output = editor.graph.output_node()
    returned: Any = output.args[0]
    results = list(returned)
    for index, (node, spec) in enumerate(zip(results, program.signature.outputs, strict=True)):
        if not isinstance(node, torch.fx.Node) or has_order(node.meta["val"], spec.order):
            continue
        editor.report(node, f"copied {spec.name} into eager's layout")
        results[index] = editor.call(ops.to_layout, (node, list(spec.order)), output)
        editor.changed += 1
    output.args = (tuple(results),)
    return editor.finish("keep-output-layout", f"restored the layout of {editor.changed} results")
