"""What a product adds, as the kernels of linears read it."""

from __future__ import annotations

from functools import partial

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, dtype_of, same_shape, shape_of
from aotpack.export.passes.patterns.products import Product, lies_along

aten = torch.ops.aten


def added_to(rewriter: Rewriter, product: Product) -> tuple[torch.fx.Node | None, torch.fx.Node | None] | None:
    """(bias of [n], residual) for the kernel out of what a product adds; None where the kernel cannot add it."""
    bias, node = product.bias, product.node
    if bias is None:
        return None, None
    if dtype_of(bias) != dtype_of(node):
        return None
    shape, rank, outputs = shape_of(bias), len(shape_of(node)), product.outputs
    if rewriter.constant(bias) is not None and lies_along(shape, rank, rank - 1, outputs):
        if len(shape) == 1 and shape[0] == outputs and product.beta == 1:
            return bias, None
        name = str(bias.target).lstrip("_")
        row = partial(_row, outputs, product.beta)
        return rewriter.derive(f"{name}_row", "folded", row, [bias], node), None
    if product.beta != 1:
        return None
    if lies_along(shape, rank, rank - 1, outputs) and shape and shape[-1] == outputs:
        return (bias if len(shape) == 1 else rewriter.call(aten.reshape.default, (bias, [outputs]), node)), None
    return (None, bias) if same_shape(bias, node) else None


def _row(outputs: int, beta: float, bias: torch.Tensor) -> torch.Tensor:
    """A bias of one value for all or in more dims as [n]."""
    return (bias.double() * beta).to(bias.dtype).reshape(-1).expand(outputs).contiguous()
