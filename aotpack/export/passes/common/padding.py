"""Folds a padding with zeros into the convolution that reads it, which pads without a copy."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments

aten = torch.ops.aten

_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)


def fold_padding(program: Program) -> Program:
    """Convolutions read the unpadded value where as many zeros were put on both sides of each of its spatial dims."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_CONVOLUTIONS):
        arguments = bound_arguments(node)
        spatial = arguments["weight"].meta["val"].dim() - 2
        found = _zeros_around(arguments["input"], spatial)
        if found is None:
            continue
        source, sides = found
        padding = list(arguments["padding"])
        padding = padding * spatial if len(padding) == 1 else padding
        arguments |= {"input": source, "padding": [a + b for a, b in zip(padding, sides, strict=True)]}
        rewriter.report(node, f"pads by {arguments['padding']} itself")
        rewriter.replace(node, rewriter.call(node.target, tuple(arguments.values()), node))
    return rewriter.finish("fold-padding", f"folded the padding of {rewriter.changed} convolutions")


def _zeros_around(node: Any, spatial: int) -> tuple[torch.fx.Node, list[int]] | None:
    """What is padded with zeros, and by how many on each side of each spatial dim; None for anything else."""
    if not isinstance(node, torch.fx.Node) or node.target not in (aten.pad.default, aten.constant_pad_nd.default):
        return None
    arguments = bound_arguments(node)
    if arguments.get("mode", "constant") != "constant" or arguments["value"] not in (None, 0):
        return None
    pads = list(arguments["pad"])
    if len(pads) > 2 * spatial or not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return None
    before, after = pads[0::2], pads[1::2]
    if before != after:
        return None
    # `pad` counts from the last dim.
    return arguments["self"], [0] * (spatial - len(before)) + before[::-1]
