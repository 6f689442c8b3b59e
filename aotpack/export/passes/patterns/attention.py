"""Attention that one kernel computes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import bound_arguments, dtype_of, shape_of
from aotpack.export.symbolic_shapes.dims import expression

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def plain_attention(node: torch.fx.Node) -> tuple[Any, ...] | None:
    """Queries, keys, values, mask, whether it is causal, and the scale of an attention.

    Args:
        node: a call of `aten::scaled_dot_product_attention`.

    Returns:
        None for an attention with dropout, over other than [batch, heads, length, dim] of one dtype, whose batches
        differ, or whose scale is not known.
    """
    arguments = bound_arguments(node)
    q, k, v, mask = arguments["query"], arguments["key"], arguments["value"], arguments["attn_mask"]
    if arguments["dropout_p"] != 0 or not _fits(q, k, v, bool(arguments["enable_gqa"])):
        return None
    if mask is not None and dtype_of(mask) not in (torch.bool, torch.float32, dtype_of(q)):
        return None
    head_dim = shape_of(q)[3]
    scale = arguments["scale"]
    if scale is None:
        if isinstance(head_dim, torch.SymInt) or head_dim == 0:
            return None
        scale = 1.0 / math.sqrt(head_dim)
    if not isinstance(scale, (int, float)):
        return None
    return q, k, v, mask, bool(arguments["is_causal"]), float(scale)


def _fits(q: torch.fx.Node, k: torch.fx.Node, v: torch.fx.Node, gqa: bool) -> bool:
    if any(len(shape_of(t)) != 4 or dtype_of(t) not in _DTYPES or dtype_of(t) != dtype_of(q) for t in (q, k, v)):
        return False
    (bq, hq, _, dq), (bk, hk, sk, dk), (bv, hv, sv, _) = ([expression(size) for size in shape_of(t)] for t in (q, k, v))
    if not (bq == bk == bv and hk == hv and sk == sv and dq == dk):
        return False
    return hq == hk or (gqa and hq.is_Integer and hk.is_Integer and hk > 0 and hq % hk == 0)
