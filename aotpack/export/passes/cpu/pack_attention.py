"""Replaces scaled dot-product attention by the blocked kernel."""

from __future__ import annotations

import math

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.symbolic_shapes.dims import expression

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def pack_attention(program: Program) -> Program:
    """Replaces attention without dropout over [batch, heads, length, dim] by `aotpack::attention`."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.scaled_dot_product_attention.default):
        arguments = bound_arguments(node)
        q, k, v, mask = arguments["query"], arguments["key"], arguments["value"], arguments["attn_mask"]
        if arguments["dropout_p"] != 0 or not _fits(q, k, v, bool(arguments["enable_gqa"])):
            continue
        if mask is not None and dtype_of(mask) not in (torch.bool, torch.float32, dtype_of(q)):
            continue
        head_dim = shape_of(q)[3]
        scale = arguments["scale"]
        if scale is None:
            if isinstance(head_dim, torch.SymInt) or head_dim == 0:
                continue
            scale = 1.0 / math.sqrt(head_dim)
        if not isinstance(scale, (int, float)):
            continue
        rewriter.report(node, "blocked kernel")
        call = (q, k, v, mask, bool(arguments["is_causal"]), float(scale))
        rewriter.replace(node, rewriter.call(ops.attention, call, node))
    return rewriter.finish("pack-attention", f"blocked {rewriter.changed} attentions")


def _fits(q: torch.fx.Node, k: torch.fx.Node, v: torch.fx.Node, gqa: bool) -> bool:
    if any(len(shape_of(t)) != 4 or dtype_of(t) not in _DTYPES or dtype_of(t) != dtype_of(q) for t in (q, k, v)):
        return False
    (bq, hq, _, dq), (bk, hk, sk, dk), (bv, hv, sv, _) = ([expression(size) for size in shape_of(t)] for t in (q, k, v))
    if not (bq == bk == bv and hk == hv and sk == sv and dq == dk):
        return False
    return hq == hk or (gqa and hq.is_Integer and hk.is_Integer and hk > 0 and hq % hk == 0)
