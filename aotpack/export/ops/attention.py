"""Attention without dropout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.registry import define


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    y = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.transpose(1, 2).contiguous().transpose(1, 2)


def _attention_fake(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3])).transpose(1, 2)


def _with_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    precise = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = q.to(precise) @ k.to(precise).transpose(-2, -1)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    lse = scores.logsumexp(-1).transpose(1, 2).contiguous().transpose(1, 2)
    return _attention(q, k, v, mask, is_causal, scale), lse


def _with_lse_fake(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    precise = torch.float64 if q.dtype == torch.float64 else torch.float32
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=precise).transpose(1, 2)
    return _attention_fake(q, k, v, mask, is_causal, scale), lse


attention = define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool is_causal, float scale) -> Tensor",
    _attention,
    _attention_fake,
)
attention_with_lse = define(
    "attention_with_lse(Tensor q, Tensor k, Tensor v, Tensor? mask, bool is_causal, float? scale) -> (Tensor, Tensor)",
    _with_lse,
    _with_lse_fake,
)
