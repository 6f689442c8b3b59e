"""Undoes the flattening around products: `addmm(bias, x.view(-1, k), w).view(…, n)` is a linear over x.

Models that are written over matrices, and traces that decompose linears, have a view in front of a product and one
behind it, which would keep additions and activations out of it.
"""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.editing import Editor, shape_of
from aotpack.export.patterns.products import PRODUCTS, Product, lies_along, product_of
from aotpack.export.program import Program
from aotpack.export.sizes.dims import expression

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def unflatten_products(program: Program) -> Program:
    """Products of flattened values, whose results are unflattened again, become linears over the values."""
    editor = Editor(program)
    for node in editor.nodes(*PRODUCTS):
        product = product_of(editor, node)
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
            weight = editor.call(aten.t.default, (weight,), behind)
        linear = editor.call(aten.linear.default, (source, weight, product.bias), behind)
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            if key in node.meta:
                linear.meta[key] = node.meta[key]
        editor.report(node, f"{node.name} and its views are a linear")
        editor.replace(behind, linear)
    return editor.finish("unflatten-products", f"made linears of {editor.changed} products of flattened values")


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
