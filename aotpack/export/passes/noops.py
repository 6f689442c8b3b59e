"""Removes calls that compute nothing: detach, alias, conversions to what a tensor already is."""

from __future__ import annotations

import torch

from aotpack.export.editing import Editor, as_node, bound_arguments, dtype_of, same_strides
from aotpack.export.program import Program

aten = torch.ops.aten

_IDENTITY = (aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.detach_.default)
_CONVERSIONS = (
    aten.to.dtype,
    aten.to.device,
    aten.to.dtype_layout,
    aten.to.other,
    aten.type_as.default,
)


def remove_noops(program: Program) -> Program:
    """Replaces calls that return their argument unchanged by the argument."""
    editor = Editor(program)
    for node in editor.nodes(aten._assert_tensor_metadata.default):
        # Checks what tracing has already fixed: dtype, device and layout.
        editor.report(node, "removed a check of what tracing has fixed")
        editor.graph.erase_node(node)
        editor.changed += 1
    for node in editor.nodes(*_IDENTITY):
        _remove(editor, node, as_node(node.args[0]))
    for node in editor.nodes(*_CONVERSIONS):
        arguments = bound_arguments(node)
        source = arguments["self"]
        plain = not arguments.get("copy") and arguments.get("memory_format") in (None, torch.preserve_format)
        if plain and dtype_of(source) == dtype_of(node) and source.meta["val"].device == node.meta["val"].device:
            _remove(editor, node, source)
    # A copy may be there because what it was made of, or what that is a view of, is written to afterwards.
    written = any(_writes(node) for node in editor.graph.nodes)
    for node in () if written else editor.nodes(aten.clone.default):
        source = as_node(node.args[0])
        plain = node.kwargs.get("memory_format") in (None, torch.preserve_format) and source.op == "call_function"
        # A copy of an expanded or sliced value is dense, which as_strided behind it may rely on.
        if plain and same_strides(node, source):
            _remove(editor, node, source)
    return editor.finish("remove-noops", f"removed {editor.changed} calls that compute nothing")


def _remove(editor: Editor, node: torch.fx.Node, source: torch.fx.Node) -> None:
    editor.report(node, f"removed {node.target}")
    editor.replace(node, source)


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
