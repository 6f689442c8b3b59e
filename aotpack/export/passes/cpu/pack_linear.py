"""Packs constant weights of linears and matrix products for the kernel."""

from __future__ import annotations

from functools import partial

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of
from aotpack.export.passes.patterns.added import added_to
from aotpack.export.passes.patterns.products import PRODUCTS, product_of

aten = torch.ops.aten


def pack_linear(program: Program) -> Program:
    """Replaces products with a constant second operand by `aotpack::packed_linear`.

    A table that is also looked up (tied embeddings) is read out of the packed weight, so that it is stored once.
    """
    rewriter = Rewriter(program)
    packed: dict[tuple[object, ...], torch.fx.Node] = {}
    rows: dict[str, torch.fx.Node] = {}
    for node in rewriter.nodes(*PRODUCTS):
        product = product_of(rewriter, node)
        if product is None or dtype_of(product.weight) not in ops.KERNEL_DTYPES:
            continue
        added = added_to(rewriter, product)
        if added is None:
            continue
        bias, residual = added
        name = str(product.weight.target)
        key = (name, product.rows, product.alpha)
        if key not in packed:
            first = next(iter(rewriter.graph.nodes))
            layout = partial(_pack, product.rows, product.alpha)
            packed[key] = rewriter.derive(f"packed_{name.lstrip('_')}", "packed", layout, [product.weight], first)
            if product.rows and product.alpha == 1:
                rows[name] = packed[key]
        arguments = (product.x, packed[key], bias, residual, product.outputs, 0)
        rewriter.report(node, f"packed the weight {list(shape_of(product.weight))}")
        rewriter.replace(node, rewriter.call(ops.packed_linear, arguments, node))
    lookups = 0
    for node in rewriter.nodes(aten.embedding.default):
        table = node.args[0]
        if not isinstance(table, torch.fx.Node) or table.op != "get_attr":
            continue
        shared = rows.get(str(table.target))
        if shared is not None:
            count = shape_of(table)[0]
            rewriter.report(node, "reads the packed weight of a product")
            rewriter.replace(node, rewriter.call(ops.packed_embedding, (shared, node.args[1], count), node))
            lookups += 1
    tied = f", {lookups} tied lookups read the packed table" if lookups else ""
    return rewriter.finish("pack-linear", f"packed the weights of {rewriter.changed - lookups} products{tied}")


def _pack(rows: bool, alpha: float, weight: torch.Tensor) -> torch.Tensor:
    if alpha != 1:
        weight = (weight.double() * alpha).to(weight.dtype)
    packed: torch.Tensor = ops.pack_linear(weight if rows else weight.t())
    return packed
