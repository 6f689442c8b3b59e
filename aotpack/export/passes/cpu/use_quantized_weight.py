"""Products with constant matrices of 4 or 8 bits read these, in place of dequantized copies."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of
from aotpack.export.passes.patterns.added import added_to
from aotpack.export.passes.patterns.products import PRODUCTS, operands_of
from aotpack.export.passes.patterns.quantized_constants import Kind, recipes
from aotpack.export.passes.patterns.quantized_matrix import quantized_matrix

aten = torch.ops.aten


def use_quantized_weight(program: Program) -> Program:
    """Replaces products with dequantized constants by `aotpack::quantized_linear`."""
    rewriter = Rewriter(program)
    packed: dict[tuple[torch.fx.Node, bool], tuple[dict[Kind, torch.fx.Node], int] | None] = {}
    for node in rewriter.nodes(*PRODUCTS):
        product = operands_of(node)
        if product is None or product.alpha != 1 or dtype_of(product.x) not in ops.KERNEL_DTYPES:
            continue
        if not isinstance(product.weight, torch.fx.Node) or len(shape_of(product.weight)) != 2:
            continue
        key = (product.weight, product.rows)
        if key not in packed:
            found = quantized_matrix(rewriter, product.weight, 1 if product.rows else 0)
            packed[key] = None
            if found is not None:
                roots = _roots(product.weight)
                recipe = recipes(found, product.rows, roots)
                name = str(roots[0].target).lstrip("_")
                first = next(iter(rewriter.graph.nodes))
                kinds: list[Kind] = ["numbers", "scale"]
                kinds += [] if found.centred else ["offset"]
                kinds += [] if found.choice is None else ["order", "bounds"]
                made: dict[Kind, torch.fx.Node] = {
                    kind: rewriter.derive(f"{kind}_{name}", "packed", recipe(kind), roots, first, exact=False)
                    for kind in kinds
                }
                packed[key] = made, found.group
        pack = packed[key]
        added = None if pack is None else added_to(rewriter, product)
        if pack is None or added is None:
            continue
        constants, group = pack
        x = product.x
        if "order" in constants:
            x = rewriter.call(aten.index_select.default, (x, -1, constants["order"]), node)
        stored = (constants["numbers"], constants["scale"], constants.get("offset"), constants.get("bounds"))
        arguments = (x, *stored, *added, product.outputs, group, 0)
        rewriter.report(node, f"reads the quantized weight {list(shape_of(product.weight))}")
        rewriter.replace(node, rewriter.call(ops.quantized_linear, arguments, node))
    return rewriter.finish("use-quantized-weight", f"{rewriter.changed} products read quantized weights")


def _roots(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The constants that a value is made of, in order of the graph."""
    found, pending = dict[torch.fx.Node, None](), [node]
    seen = set[torch.fx.Node]()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.op == "get_attr":
            found[current] = None
        pending += reversed(current.all_input_nodes)
    return list(found)
