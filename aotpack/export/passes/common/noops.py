"""Removes calls without effect: detach, alias, conversions to what a tensor already is."""

from __future__ import annotations

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, same_shape, same_strides
from aotpack.export.torch_compat.operators import OpOverload, operator_schema

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
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten._assert_tensor_metadata.default):
        # Checks what tracing has already fixed: dtype, device and layout.
        rewriter.report(node, "removed a check that tracing resolved")
        rewriter.graph.erase_node(node)
        rewriter.changed += 1
    for node in rewriter.nodes(*_IDENTITY):
        _remove(rewriter, node, as_node(node.args[0]))
    for node in rewriter.nodes(*_CONVERSIONS):
        arguments = bound_arguments(node)
        source = arguments["self"]
        plain = not arguments.get("copy") and arguments.get("memory_format") in (None, torch.preserve_format)
        if plain and dtype_of(source) == dtype_of(node) and source.meta["val"].device == node.meta["val"].device:
            _remove(rewriter, node, source)
    # A copy may be there because what it was made of, or what that is a view of, is written to afterwards.
    written = any(_writes(node) for node in rewriter.graph.nodes)
    for node in () if written else rewriter.nodes(aten.clone.default):
        source = as_node(node.args[0])
        plain = node.kwargs.get("memory_format") in (None, torch.preserve_format) and source.op == "call_function"
        # A copy of an expanded or sliced value is dense, which as_strided behind it may rely on.
        if plain and same_strides(node, source):
            _remove(rewriter, node, source)
    # What a kernel has written is copied into the tensor that it was launched with.
    for node in () if written else rewriter.nodes(aten.copy.default):
        into, source = as_node(node.args[0]), as_node(node.args[1])
        same = same_shape(into, source) and same_strides(into, source) and dtype_of(into) == dtype_of(source)
        if same and source.op == "call_function" and same_strides(node, source):
            _remove(rewriter, node, source)
    return rewriter.finish("remove-noops", f"removed {rewriter.changed} calls without effect")


def _remove(rewriter: Rewriter, node: torch.fx.Node, source: torch.fx.Node) -> None:
    rewriter.report(node, f"removed {node.target}")
    rewriter.replace(node, source)


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and operator_schema(node.target).is_mutable
