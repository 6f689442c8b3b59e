"""Convolutions in all the ways in which a graph calls them, as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, schema_of, shape_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Convolution:
    """A call of one of `CONVOLUTIONS`, with a number for each spatial dim.

    Attributes:
        x: with a batch.
        weight, bias: as the call has them.
        kernel, stride, padding, dilation, output_padding: per spatial dim.
        transposed, groups: of the call.
        batched: whether the call itself has a batch.
    """

    x: torch.fx.Node
    weight: torch.fx.Node
    bias: torch.fx.Node | None
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    output_padding: list[int]
    transposed: bool
    groups: int
    batched: bool

    @property
    def out_channels(self) -> int:
        out: int = shape_of(self.weight)[1] * self.groups if self.transposed else shape_of(self.weight)[0]
        return out


def convolution(rewriter: Rewriter, node: torch.fx.Node) -> Convolution | None:
    """What a call computes; where it has no batch or an uneven padding, calls in front of it supply them.

    Returns:
        None for more than three spatial dims, and where the weight's sizes are dynamic.
    """
    arguments = bound_arguments(node)
    x, weight = arguments["input"], arguments["weight"]
    sizes = list(shape_of(weight))
    spatial = len(sizes) - 2
    if spatial not in (1, 2, 3) or not all(isinstance(size, int) for size in sizes):
        return None
    kernel = sizes[2:]
    stride, dilation = _spread(arguments["stride"], spatial), _spread(arguments["dilation"], spatial)
    batched = len(shape_of(x)) == len(sizes)
    if not batched:
        x = rewriter.call(aten.unsqueeze.default, (x, 0), node)
    x, padding = _padding(rewriter, node, x, arguments["padding"], kernel, dilation)
    return Convolution(
        x=x,
        weight=weight,
        bias=arguments["bias"],
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        output_padding=_spread(arguments.get("output_padding", 0), spatial),
        transposed=bool(arguments.get("transposed")) or "transpose" in schema_of(node).name,
        groups=arguments["groups"],
        batched=batched,
    )


def unpadded(x: torch.fx.Node, padding: list[int]) -> tuple[torch.fx.Node, list[int], list[int]]:
    """What is padded with zeros, and the whole padding before and after each dim; `padding` itself is on both sides."""
    before, after = list(padding), list(padding)
    if x.target not in (aten.pad.default, aten.constant_pad_nd.default):
        return x, before, after
    arguments = bound_arguments(x)
    pads, rank = list(arguments["pad"]), len(padding)
    zeros = arguments.get("mode", "constant") == "constant" and arguments["value"] in (None, 0)
    if not zeros or len(pads) > 2 * rank or not all(isinstance(p, int) and p >= 0 for p in pads):
        return x, before, after
    for d in range(len(pads) // 2):  # the last dim comes first
        before[rank - 1 - d] += pads[2 * d]
        after[rank - 1 - d] += pads[2 * d + 1]
    return as_node(arguments["self"]), before, after


def _spread(value: Any, count: int) -> list[int]:
    if isinstance(value, int):
        return [value] * count
    values = list(value)
    return values * count if len(values) == 1 else values


def _padding(
    rewriter: Rewriter, node: torch.fx.Node, x: torch.fx.Node, padding: Any, kernel: list[int], dilation: list[int]
) -> tuple[torch.fx.Node, list[int]]:
    """Padding per dim; an uneven "same" padding is made explicit."""
    if not isinstance(padding, str):
        return x, _spread(padding, len(kernel))
    if padding == "valid":
        return x, [0] * len(kernel)
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if all(total % 2 == 0 for total in totals):
        return x, [total // 2 for total in totals]
    # torch pads the greater half behind.
    pads = [side for total in reversed(totals) for side in (total // 2, total - total // 2)]
    return rewriter.call(aten.constant_pad_nd.default, (x, pads), node), [0] * len(kernel)
