"""Packs constant convolution weights for the kernel; activations become channels-last."""

from __future__ import annotations

from functools import partial

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of
from aotpack.export.passes.patterns.convolutions import Convolution, convolution, unpadded
from aotpack.export.passes.patterns.producers import CONVOLUTIONS

aten = torch.ops.aten


def pack_conv(program: Program) -> Program:
    """Replaces convolutions whose weight is a constant of fp32, bf16 or fp16 by `aotpack::packed_conv`."""
    rewriter = Rewriter(program)
    first = next(iter(rewriter.graph.nodes))
    packed: dict[tuple[str, int, bool], torch.fx.Node] = {}
    for node in rewriter.nodes(*CONVOLUTIONS):
        arguments = bound_arguments(node)
        weight = rewriter.constant(arguments["weight"])
        if weight is None or weight.dtype not in ops.KERNEL_DTYPES or dtype_of(arguments["input"]) != weight.dtype:
            continue
        conv = convolution(rewriter, node)
        if conv is None:
            continue
        source = str(conv.weight.target)
        key = (source, conv.groups, conv.transposed)
        if key not in packed:
            layout = partial(_pack, conv.groups, conv.transposed)
            packed[key] = rewriter.derive(f"packed_{source}", "packed", layout, [conv.weight], first)
        x, padding = (conv.x, conv.padding) if conv.transposed else _unpadded(conv)
        result = rewriter.call(
            ops.packed_conv,
            (
                x,
                packed[key],
                conv.bias,
                None,
                conv.out_channels,
                conv.kernel,
                conv.stride,
                padding,
                conv.dilation,
                conv.transposed,
                conv.output_padding,
                conv.groups,
                0,
            ),
            node,
        )
        if not conv.batched:
            result = rewriter.call(aten.squeeze.dim, (result, 0), node)
        rewriter.report(node, f"packed the weight {list(weight.shape)}")
        rewriter.replace(node, result)
    return rewriter.finish("pack-conv", f"packed the weights of {rewriter.changed} convolutions")


def _unpadded(conv: Convolution) -> tuple[torch.fx.Node, list[int]]:
    """A padding in front of the call becomes its own: the kernel reads zeros without a copy."""
    x, before, after = unpadded(conv.x, conv.padding)
    return x, before if before == after else before + after


def _pack(groups: int, transposed: bool, weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = ops.pack_conv(weight, groups, transposed)
    return packed
