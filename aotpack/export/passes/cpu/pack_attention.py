"""Replaces scaled dot-product attention by the blocked kernel, and copies that only it reads."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node
from aotpack.export.passes.patterns.attention import plain_attention
from aotpack.export.passes.patterns.moves import COPIES

aten = torch.ops.aten


def pack_attention(program: Program) -> Program:
    """Replaces attention without dropout over [batch, heads, length, dim] by `aotpack::attention`."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.scaled_dot_product_attention.default):
        call = plain_attention(node)
        if call is not None:
            rewriter.report(node, "blocked kernel")
            operands, rest = [_uncopied(operand) for operand in call[:3]], call[3:]
            rewriter.replace(node, rewriter.call(ops.attention, (*operands, *rest), node))
    return rewriter.finish("pack-attention", f"blocked {rewriter.changed} attentions")


def _uncopied(operand: torch.fx.Node) -> torch.fx.Node:
    """What an operand is a copy of, as of heads that have been transposed: the kernel reads rows wherever they lie."""
    while operand.target in COPIES and _has_rows(source := as_node(operand.args[0])):
        operand = source
    return operand


def _has_rows(node: torch.fx.Node) -> bool:
    stride: Any = node.meta["val"].stride(-1)
    return isinstance(stride, int) and stride == 1
