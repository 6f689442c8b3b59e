"""Packs constant weights of linears and matrix products for our kernel."""

from __future__ import annotations

import torch

from aotpack.export import ops, packing
from aotpack.export.editing import Editor, bound_arguments, dtype_of, shape_of
from aotpack.export.program import Program

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.bfloat16)
_PRODUCTS = (aten.linear.default, aten.addmm.default, aten.mm.default, aten.matmul.default)


def pack_linear(program: Program) -> Program:
    """Replaces products with a constant second operand by `aotpack::packed_linear`.

    A table that is also looked up (tied embeddings) is read out of the packed weight, so that it is stored once.
    """
    editor = Editor(program)
    packed: dict[tuple[str, bool], torch.fx.Node] = {}
    rows: dict[str, torch.fx.Node] = {}
    for node in editor.nodes(*_PRODUCTS):
        operands = _operands(node)
        if operands is None:
            continue
        x, weight_node, bias, transposed = operands
        weight = editor.constant(weight_node)
        if weight is None or weight.dim() != 2 or weight.dtype not in _DTYPES or dtype_of(x) != weight.dtype:
            continue
        if bias is not None and (len(shape_of(bias)) != 1 or dtype_of(bias) != weight.dtype):
            continue
        if len(shape_of(x)) == 0:
            continue
        outputs = weight.shape[0] if transposed else weight.shape[1]
        if bias is not None and shape_of(bias)[0] != outputs:
            continue
        key = (str(weight_node.target), transposed)
        if key not in packed:
            first = next(iter(editor.graph.nodes))
            layout = packing.pack_linear if transposed else _pack_transposed
            packed[key] = editor.derive(f"packed_{key[0]}", "packed", layout, [weight_node], first)
            if transposed:
                rows[key[0]] = packed[key]
        result = editor.call(ops.packed_linear, (x, packed[key], bias, None, outputs, 0), node)
        editor.report(node, f"packed the weight {list(weight.shape)}")
        editor.replace(node, result)
    lookups = 0
    for node in editor.nodes(aten.embedding.default):
        table = node.args[0]
        if not isinstance(table, torch.fx.Node) or table.op != "get_attr":
            continue
        shared = rows.get(str(table.target))
        if shared is not None:
            count = shape_of(table)[0]
            editor.report(node, "reads the packed weight of a product")
            editor.replace(node, editor.call(ops.packed_embedding, (shared, node.args[1], count), node))
            lookups += 1
    tied = f", {lookups} tied lookups read the packed table" if lookups else ""
    return editor.finish("pack-linear", f"packed the weights of {editor.changed - lookups} products{tied}")


def _pack_transposed(weight: torch.Tensor) -> torch.Tensor:
    return packing.pack_linear(weight.t())


def _operands(
    node: torch.fx.Node,
) -> tuple[torch.fx.Node, torch.fx.Node, torch.fx.Node | None, bool] | None:
    """(x, weight, bias, weight is [n, k]); None where the product is no linear."""
    arguments = bound_arguments(node)
    if node.target is aten.linear.default:
        return arguments["input"], arguments["weight"], arguments["bias"], True
    if node.target is aten.addmm.default:
        if arguments["alpha"] != 1 or arguments["beta"] != 1:
            return None
        return arguments["mat1"], arguments["mat2"], arguments["self"], False
    second = arguments["mat2"] if node.target is aten.mm.default else arguments["other"]
    return arguments["self"], second, None, False
