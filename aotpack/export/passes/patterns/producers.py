"""Convolutions and products with constant weights: passes fold scales and shifts into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, schema_of, shape_of
from aotpack.export.passes.patterns.products import lies_along, product_of

aten = torch.ops.aten

CONVOLUTIONS = (
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
    aten.convolution.default,
)


@dataclass(frozen=True)
class Channels:
    """Where the output channels lie in a weight: along `axis`, in each of `groups` groups of dim 0.

    Attributes:
        axis: 0, or 1 for [k, n] matrices and for transposed convolutions, whose weight is [c, oc/groups, *kernel].
        groups: 1 unless `axis` is 1 and the convolution is grouped.
    """

    axis: int
    groups: int = 1

    def scale(self, weight: torch.Tensor, factors: torch.Tensor | float) -> torch.Tensor:
        """The weight with each output channel multiplied by its factor, of [channels] or one for all."""
        if not isinstance(factors, torch.Tensor) or factors.numel() == 1:
            return weight * factors
        if self.axis == 0:
            return weight * factors.reshape(-1, *([1] * (weight.dim() - 1)))
        per_group = weight.reshape(self.groups, weight.shape[0] // self.groups, *weight.shape[1:])
        factors = factors.reshape(self.groups, 1, weight.shape[1], *([1] * (weight.dim() - 2)))
        return (per_group * factors).reshape(weight.shape)


@dataclass(frozen=True)
class Producer:
    """y = alpha * product(x, weight) + beta * bias, with a constant weight and a constant bias or none.

    Attributes:
        node: the call.
        weight: the `get_attr` node of the weight.
        bias: the `get_attr` node of a tensor of one value per output channel, or one for all.
        layout: where the output channels lie in the weight.
        axis: where they lie in the result.
        channels: their number.
    """

    node: torch.fx.Node
    x: torch.fx.Node
    weight: torch.fx.Node
    bias: torch.fx.Node | None
    layout: Channels
    axis: int
    channels: int
    alpha: float = 1
    beta: float = 1

    def again(
        self, rewriter: Rewriter, weight: torch.fx.Node, bias: torch.fx.Node | None, before: torch.fx.Node
    ) -> torch.fx.Node:
        """The same call over other constants, with neither of them multiplied.

        Args:
            weight: as the old one.
            bias: [channels].
            before: where the call goes.
        """
        if self.node.target in CONVOLUTIONS:
            arguments = bound_arguments(self.node) | {"weight": weight, "bias": bias}
            return rewriter.call(self.node.target, tuple(arguments.values()), before)
        if self.layout.axis == 1:
            weight = rewriter.call(aten.t.default, (weight,), before)
        return rewriter.call(aten.linear.default, (self.x, weight, bias), before)


def producer_of(rewriter: Rewriter, node: Any) -> Producer | None:
    """The convolution or product with constants that a call computes; None where it computes something else."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function":
        return None
    found = _convolution(rewriter, node) if node.target in CONVOLUTIONS else _product(rewriter, node)
    if found is None or found.bias is None:
        return found
    rank = len(shape_of(node))
    # A convolution's bias is [channels], wherever these lie in the result.
    shape = shape_of(found.bias)
    if rewriter.constant(found.bias) is None or dtype_of(found.bias) != dtype_of(node):
        return None
    if node.target not in CONVOLUTIONS and not lies_along(shape, rank, found.axis, found.channels):
        return None
    return found


def _convolution(rewriter: Rewriter, node: torch.fx.Node) -> Producer | None:
    arguments = bound_arguments(node)
    weight = rewriter.constant(arguments["weight"])
    if weight is None or not weight.is_floating_point() or dtype_of(node) != weight.dtype:
        return None
    transposed = bool(arguments.get("transposed")) or "transpose" in schema_of(node).name
    groups = arguments["groups"]
    layout = Channels(1, groups) if transposed else Channels(0)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    axis = len(shape_of(node)) - weight.dim() + 1
    return Producer(node, arguments["input"], arguments["weight"], arguments["bias"], layout, axis, channels)


def _product(rewriter: Rewriter, node: torch.fx.Node) -> Producer | None:
    product = product_of(rewriter, node)
    if product is None:
        return None
    layout = Channels(0 if product.rows else 1)
    axis = len(shape_of(node)) - 1
    return Producer(
        node, product.x, product.weight, product.bias, layout, axis, product.outputs, product.alpha, product.beta
    )
