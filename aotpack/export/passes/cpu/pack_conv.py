"""Packs constant convolution weights for the kernel; activations become channels-last."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, schema_of, shape_of
from aotpack.export.passes.patterns.producers import CONVOLUTIONS

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def pack_conv(program: Program) -> Program:
    """Replaces convolutions whose weight is a constant of fp32, bf16 or fp16 by `aotpack::packed_conv`."""
    rewriter = Rewriter(program)
    first = next(iter(rewriter.graph.nodes))
    packed: dict[tuple[str, int, bool], torch.fx.Node] = {}
    for node in rewriter.nodes(*CONVOLUTIONS):
        arguments = bound_arguments(node)
        x = arguments["input"]
        weight = rewriter.constant(arguments["weight"])
        if weight is None or weight.dtype not in _DTYPES or dtype_of(x) != weight.dtype:
            continue
        spatial = weight.dim() - 2
        if spatial not in (1, 2, 3):
            continue
        transposed = bool(arguments.get("transposed")) or "transpose" in schema_of(node).name
        groups = arguments["groups"]
        kernel = list(weight.shape[2:])
        stride, dilation = _spread(arguments["stride"], spatial), _spread(arguments["dilation"], spatial)
        batched = len(shape_of(x)) == weight.dim()
        if not batched:
            x = rewriter.call(aten.unsqueeze.default, (x, 0), node)
        x, padding = _padding(rewriter, node, x, arguments["padding"], kernel, dilation)
        output_padding = _spread(arguments.get("output_padding", 0), spatial)
        source = str(arguments["weight"].target)
        key = (source, groups, transposed)
        if key not in packed:
            layout = partial(_pack, groups, transposed)
            packed[key] = rewriter.derive(f"packed_{source}", "packed", layout, [arguments["weight"]], first)
        out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
        result = rewriter.call(
            ops.packed_conv,
            (
                x,
                packed[key],
                arguments["bias"],
                None,
                out_channels,
                kernel,
                stride,
                padding,
                dilation,
                transposed,
                output_padding,
                groups,
                0,
            ),
            node,
        )
        if not batched:
            result = rewriter.call(aten.squeeze.dim, (result, 0), node)
        rewriter.report(node, f"packed the weight {list(weight.shape)}")
        rewriter.replace(node, result)
    return rewriter.finish("pack-conv", f"packed the weights of {rewriter.changed} convolutions")


def _pack(groups: int, transposed: bool, weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = ops.pack_conv(weight, groups, transposed)
    return packed


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
