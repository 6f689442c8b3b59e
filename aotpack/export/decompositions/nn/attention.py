"""Attention with gradients, and in double precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes, fixed
from aotpack.export.ops.attention import attention_with_lse


@decomposes(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p != 0:
        return NotImplemented
    y, lse = attention_with_lse(query, key, value, attn_mask, is_causal, scale)
    # torch's result lies as the query does, ours always by position.
    if fixed(*query.shape) and query.transpose(1, 2).is_contiguous():
        return y, lse
    return aten.copy.default(torch.empty_like(query), y), lse
