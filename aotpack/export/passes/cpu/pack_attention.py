"""Replaces scaled dot-product attention by the blocked kernel."""

from __future__ import annotations

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.passes.patterns.attention import plain_attention

aten = torch.ops.aten


def pack_attention(program: Program) -> Program:
    """Replaces attention without dropout over [batch, heads, length, dim] by `aotpack::attention`."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.scaled_dot_product_attention.default):
        call = plain_attention(node)
        if call is not None:
            rewriter.report(node, "blocked kernel")
            rewriter.replace(node, rewriter.call(ops.attention, call, node))
    return rewriter.finish("pack-attention", f"blocked {rewriter.changed} attentions")
