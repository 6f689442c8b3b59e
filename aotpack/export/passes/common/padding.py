"""Folds a padding with zeros into the convolution that reads it, which pads without a copy."""

from __future__ import annotations

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments
from aotpack.export.passes.patterns.convolutions import unpadded

aten = torch.ops.aten

_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)


def fold_padding(program: Program) -> Program:
    """Convolutions read the unpadded value where as many zeros were put on both sides of each of its spatial dims."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_CONVOLUTIONS):
        arguments = bound_arguments(node)
        spatial = arguments["weight"].meta["val"].dim() - 2
        padding = list(arguments["padding"])
        x, before, after = unpadded(arguments["input"], padding * spatial if len(padding) == 1 else padding)
        if x is arguments["input"] or before != after:
            continue
        arguments |= {"input": x, "padding": before}
        rewriter.report(node, f"pads by {arguments['padding']} itself")
        rewriter.replace(node, rewriter.call(node.target, tuple(arguments.values()), node))
    return rewriter.finish("fold-padding", f"folded the padding of {rewriter.changed} convolutions")
