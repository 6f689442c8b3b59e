"""Calls of the backward of convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, bound_arguments, shape_of
from aotpack.export.symbolic_shapes.dims import expression

aten = torch.ops.aten


@dataclass(frozen=True)
class ConvolutionBackward:
    """One call: the gradient of y, x and W as nodes, and how y was computed; a number per spatial dim."""

    node: torch.fx.Node
    dy: torch.fx.Node
    x: torch.fx.Node
    weight: torch.fx.Node
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    groups: int

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def depthwise(self) -> bool:
        """One channel in and one out per group."""
        return bool(shape_of(self.weight)[1] == 1 and shape_of(self.weight)[0] == self.groups)

    @property
    def reach(self) -> list[int]:
        """Distance from the first to the last tap."""
        return [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]


def convolution_backward(node: torch.fx.Node) -> ConvolutionBackward | None:
    """What a call computes; None where the kernel's sizes are dynamic or there are more than three of them."""
    arguments = bound_arguments(node)
    weight = arguments["weight"]
    kernel = list(shape_of(weight)[2:])
    spatial = len(kernel)
    numbers = {name: _spread(arguments[name], spatial) for name in ("stride", "padding", "dilation")}
    constants = [*kernel, *(number for values in numbers.values() for number in values)]
    if spatial not in (1, 2, 3) or not all(isinstance(number, int) for number in constants):
        return None
    return ConvolutionBackward(
        node,
        arguments["grad_output"],
        arguments["input"],
        weight,
        kernel,
        numbers["stride"],
        numbers["padding"],
        numbers["dilation"],
        arguments["transposed"],
        arguments["groups"],
    )


def _spread(values: list[Any], count: int) -> list[Any]:
    return list(values) * count if len(values) == 1 else list(values)


def cut(
    rewriter: Rewriter, b: ConvolutionBackward, value: torch.fx.Node, like: torch.fx.Node, first: int
) -> torch.fx.Node:
    """`value` without what its spatial dims, from `first` on, have beyond those of `like`."""
    for axis in range(b.spatial):
        size = shape_of(like)[2 + axis]
        if expression(shape_of(value)[first + axis]) == expression(size):
            continue
        end = size if isinstance(size, int) else rewriter.call(aten.sym_size.int, (like, 2 + axis), b.node)
        value = rewriter.call(aten.slice.Tensor, (value, first + axis, 0, end), b.node)
    return value
