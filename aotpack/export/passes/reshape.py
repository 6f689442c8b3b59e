"""Turns views into reshapes where convolutions may change strides, so that a view never depends on a layout."""

from __future__ import annotations

import torch

from aotpack.export.editing import Editor, is_contiguous
from aotpack.export.program import Program

aten = torch.ops.aten


def free_views(program: Program) -> Program:
    """`view` becomes `reshape`; `as_strided` reads a contiguous copy when its source's strides may change."""
    editor = Editor(program)
    for node in editor.nodes(aten.view.default, aten._unsafe_view.default):
        editor.report(node, f"{node.name} may copy")
        node.target = aten.reshape.default
        editor.changed += 1
    for node in editor.nodes(aten.as_strided.default):
        source = node.args[0]
        if isinstance(source, torch.fx.Node) and source.op == "call_function" and is_contiguous(source.meta["val"]):
            editor.report(node, f"{node.name} reads a contiguous copy")
            node.args = (
                editor.call(aten.clone.default, (source,), node, memory_format=torch.contiguous_format),
                *node.args[1:],
            )
            editor.changed += 1
    return editor.finish("free-views", f"freed {editor.changed} views from strides")
