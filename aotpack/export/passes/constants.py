"""Folds what depends on constants alone: casts, transpositions, lookups with constant indices.

Never folded: random operators, values that depend on symbolic sizes, state that the model writes, and values made of
nothing (`arange`, `zeros`), which are cheaper to compute than to load. A fold may not make the archive larger than the
constants that it consumes by more than `_GROWTH` bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from aotpack.export.editing import Editor
from aotpack.export.program import Program

_GROWTH = 64 * 1024

aten = torch.ops.aten


def fold_constants(program: Program) -> Program:
    """Evaluates constant subgraphs and stores what the rest of the graph reads of them."""
    editor = Editor(program)
    values: dict[torch.fx.Node, Any] = {}
    roots: dict[torch.fx.Node, tuple[torch.fx.Node, ...]] = {}
    for node in editor.graph.nodes:
        constant = editor.constant(node)
        if constant is not None:
            values[node], roots[node] = constant, (node,)
        elif _foldable(node) and all(source in values for source in node.all_input_nodes):
            arguments: Any = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
            with torch.no_grad():
                values[node] = _function(node)(*arguments[0], **arguments[1])
            roots[node] = tuple(dict.fromkeys(r for source in node.all_input_nodes for r in roots[source]))
    for node in list(editor.graph.nodes):
        value = values.get(node)
        if node.op == "get_attr" or not isinstance(value, torch.Tensor) or not roots[node]:
            continue
        if all(user in values for user in node.users):
            continue
        dense = value if _is_dense(value) else value.contiguous()
        consumed = sum(_bytes(values[root]) for root in roots[node])
        if _bytes(dense) > consumed + _GROWTH:
            continue
        folded = editor.add_constant(dense.clone(), node.name, "folded", editor.sources(*roots[node]), node)
        editor.replace(node, folded)
    return editor.finish("constants", f"folded {editor.changed} values")


def _foldable(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    if node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    # Batch norm and dropout in training mode, and operators whose result has sizes out of data, keep their place.
    if torch.Tag.data_dependent_output in node.target.tags or torch.Tag.dynamic_output_shape in node.target.tags:
        return False
    values = node.meta.get("val")
    tensors = values if isinstance(values, (tuple, list)) else [values]
    return all(isinstance(t, torch.Tensor) and not any(isinstance(s, torch.SymInt) for s in t.shape) for t in tensors)


def _function(node: torch.fx.Node) -> Callable[..., Any]:
    if not callable(node.target):
        raise TypeError(f"{node.name} calls {node.target}, which is no function")
    return node.target


def _is_dense(tensor: torch.Tensor) -> bool:
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    return tensor.permute(order).is_contiguous()


def _bytes(value: object) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
