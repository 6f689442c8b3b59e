"""Convolutions become calls of this project's kernels."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of
from aotpack.export.passes.patterns.convolutions import Convolution, convolution
from aotpack.export.passes.patterns.producers import CONVOLUTIONS

aten = torch.ops.aten


def use_conv(program: Program) -> Program:
    """Replaces convolutions by `aotpack::cuda_conv`, with the channels of constant weights innermost in memory."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import conv as operator

    rewriter = Rewriter(program)
    first = next(iter(rewriter.graph.nodes))
    laid_out: dict[tuple[str, bool], torch.fx.Node] = {}
    for node in rewriter.nodes(*CONVOLUTIONS):
        if dtype_of(node) not in operator.DTYPES:
            continue
        conv = convolution(rewriter, node)
        if conv is None or 0 in shape_of(conv.weight) or {dtype_of(conv.x), dtype_of(conv.weight)} != {dtype_of(node)}:
            continue
        if not isinstance(shape_of(conv.x)[1], int):
            continue
        arguments = (conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups, 0)
        weight = _weight(rewriter, conv, first, laid_out)
        result = rewriter.call(operator.OPERATOR, (conv.x, weight, conv.bias, *arguments), node)
        if not conv.batched:
            result = rewriter.call(aten.squeeze.dim, (result, 0), node)
        rewriter.report(node, "convolution by our kernel")
        rewriter.replace(node, result)
    return rewriter.finish("use-conv", f"{rewriter.changed} convolutions by our kernel")


def _weight(
    rewriter: Rewriter, conv: Convolution, first: torch.fx.Node, laid_out: dict[tuple[str, bool], torch.fx.Node]
) -> torch.fx.Node:
    if rewriter.constant(conv.weight) is None:
        return conv.weight
    key = (str(conv.weight.target), conv.transposed)
    if key not in laid_out:
        layout = _channels_outermost if conv.transposed else _channels_innermost
        laid_out[key] = rewriter.derive(f"laid_out_{conv.weight.target}", "packed", layout, [conv.weight], first)
    return laid_out[key]


def _channels_innermost(weight: torch.Tensor) -> torch.Tensor:
    """[out, in, ...], in memory [out, ..., in]."""
    return weight.movedim(1, -1).contiguous().movedim(-1, 1)


def _channels_outermost(weight: torch.Tensor) -> torch.Tensor:
    """[in, out, ...], in memory [out, ..., in]."""
    return weight.movedim(0, -1).contiguous().movedim(-1, 0)
