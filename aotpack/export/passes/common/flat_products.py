"""Undoes the flattening around products: `addmm(bias, x.view(-1, k), w).view(…, n)` is a linear over x.

Models that are written over matrices, and traces that decompose linears, have a view in front of a product and one
behind it, which would keep additions and activations out of it.
"""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, shape_of, take_place
from aotpack.export.passes.patterns.products import PRODUCTS, Product, lies_along, product_of
from aotpack.export.symbolic_shapes.dims import expression

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def unflatten_products(program: Program) -> Program:
    """Products of flattened values, whose results are unflattened again, become linears over the values."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*PRODUCTS):
        product = product_of(rewriter, node)
        if product is None or product.alpha != 1 or product.beta != 1 or len(node.users) != 1:
            continue
        (behind,) = node.users
        source = _unflattened(product, behind)
        if source is None:
            continue
        if product.bias is not None and not lies_along(shape_of(product.bias), 2, 1, product.outputs):
            continue
        weight = product.weight
        if not product.rows:
            weight = rewriter.call(aten.t.default, (weight,), behind)
        linear = rewriter.call(aten.linear.default, (source, weight, product.bias), behind)
        take_place(linear, node)
        rewriter.report(node, f"{node.name} and its views are a linear")
        rewriter.replace(behind, linear)
    return rewriter.finish("unflatten-products", f"made linears from {rewriter.changed} products of flattened values")


def _unflattened(product: Product, behind: torch.fx.Node) -> torch.fx.Node | None:
    """The value of which a product reads a flattened view, if the view behind the product has its dims again."""
    flat = product.x
    if flat.target not in _VIEWS or behind.target not in _VIEWS or len(shape_of(product.node)) != 2:
        return None
    source = flat.args[0]
    if not isinstance(source, torch.fx.Node):
        return None
    outer, inner = list(shape_of(source)), list(shape_of(behind))
    if len(outer) != len(inner) or [expression(s) for s in outer[:-1]] != [expression(s) for s in inner[:-1]]:
        return None
    # The last dims: features and outputs, known numbers.
    if outer[-1] != shape_of(flat)[-1] or inner[-1] != product.outputs:
        return None
    return source
