"""Gives operators that have a Triton kernel one for CPUs, so that programs with them can be run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops import grouped_mm, grouped_outer
from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda import (
    attention,
    attention_backward,
    conv,
    embedding_bag,
    gemm,
    grouped,
    int8_weight,
    recurrent,
)


@gemm.cuda_gemm.register_kernel("cpu")
def _gemm(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, activation: int) -> Tensor:
    product = alpha * (a @ b)
    return BY_NUMBER[activation](product if bias is None else product + bias).contiguous()


@attention.cuda_attention.register_kernel("cpu")
def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=True)
    return y.transpose(1, 2).contiguous().transpose(1, 2)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    scores = scale * q.float() @ k.float().repeat_interleave(q.shape[1] // k.shape[1], 1).mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf) if is_causal else scores


@attention.cuda_attention_with_statistics.register_kernel("cpu")
def _attention_with_statistics(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, mask, is_causal, scale)
    largest = scores.amax(-1)
    largest = largest.masked_fill(largest == -torch.inf, 0)
    sums = (scores - largest[..., None]).exp().sum(-1)
    logarithm = sums.log2().masked_fill(sums == 0, torch.inf)
    return _attention(q, k, v, mask, is_causal, scale), torch.stack([largest, logarithm], 2)


@attention_backward.cuda_attention_backward.register_kernel("cpu")
def _attention_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, y: Tensor, statistics: Tensor, is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    largest, logarithm = statistics[..., None].unbind(2)
    p = (_scores(q, k, mask, is_causal, scale) - largest - logarithm * math.log(2)).exp()
    group = q.shape[1] // k.shape[1]
    dp = dy.float() @ v.float().repeat_interleave(group, 1).mT
    ds = scale * p * (dp - (dy.float() * y.float()).sum(-1, keepdim=True))
    gradients = (
        ds @ k.float().repeat_interleave(group, 1),
        (ds.mT @ q.float()).unflatten(1, (-1, group)).sum(2),
        (p.mT @ dy.float()).unflatten(1, (-1, group)).sum(2),
    )
    dq, dk, dv = (value.to(q.dtype).transpose(1, 2).contiguous().transpose(1, 2) for value in gradients)
    return dq, dk, dv


@conv.cuda_conv.register_kernel("cpu")
def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    activation: int,
    residual: Tensor | None = None,
) -> Tensor:
    y = torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return BY_NUMBER[activation](y if residual is None else y + residual).movedim(1, -1).contiguous().movedim(-1, 1)


@embedding_bag.cuda_embedding_bag.register_kernel("cpu")
def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor | None, mode: int, scales: Tensor | None, last: bool, padding: int
) -> Tensor:
    return F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=("sum", "mean", "max")[mode],
        per_sample_weights=scales,
        include_last_offset=last,
        padding_idx=None if padding < 0 else padding,
    )


@grouped.cuda_grouped_mm.register_kernel("cpu")
def _grouped_mm(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    return grouped_mm(x, w, ends)


@grouped.cuda_grouped_outer.register_kernel("cpu")
def _grouped_outer(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return grouped_outer(a, b, ends)


@int8_weight.cuda_int8_weight_linear.register_kernel("cpu")
def _int8_weight_linear(
    x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None, activation: int
) -> Tensor:
    y = x.double() @ weight.double().T
    y = y if scale is None else y * scale
    return BY_NUMBER[activation](y if bias is None else y + bias).to(x.dtype)


@recurrent.cuda_lstm_layer.register_kernel("cpu")
def _lstm_layer(
    x: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, c: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    y = x.new_empty((*x.shape[:2], weight.shape[1]))
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        i, f, g, o = (x[t] + F.linear(h, weight, bias)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = y[t] = o.sigmoid() * c.tanh()
    return y, h.clone(), c


@recurrent.cuda_gru_layer.register_kernel("cpu")
def _gru_layer(x: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    y = x.new_empty((*x.shape[:2], weight.shape[1]))
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        (xr, xz, xn), (hr, hz, hn) = x[t].chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)
        z = (xz + hz).sigmoid()
        h = y[t] = (1 - z) * (xn + (xr + hr).sigmoid() * hn).tanh() + z * h
    return y, h.clone()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
