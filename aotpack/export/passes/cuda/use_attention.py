"""Attention becomes a call of this project's kernel."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of
from aotpack.export.passes.patterns.attention import plain_attention
from aotpack.export.passes.patterns.repeated_heads import of_groups

aten = torch.ops.aten


def use_attention(program: Program) -> Program:
    """Replaces attention by `aotpack::cuda_attention`; what it does not compute stays products and a softmax."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import attention

    def fits(tensor: torch.fx.Node) -> bool:
        _, heads, _, dim = shape_of(tensor)
        return isinstance(heads, int) and heads > 0 and isinstance(dim, int) and 0 < dim <= attention.LARGEST_DIM

    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.scaled_dot_product_attention.default):
        call = plain_attention(node)
        if call is not None and dtype_of(node) in attention.DTYPES and fits(call[0]) and fits(call[2]):
            rewriter.report(node, "attention by our kernel")
            q, k, v, *how = call
            rewriter.replace(node, rewriter.call(attention.OPERATOR, (q, *of_groups(k, v), *how), node))
    return rewriter.finish("use-attention", f"{rewriter.changed} attentions by our kernel")
