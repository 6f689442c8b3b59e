"""Gives operators that have a Triton kernel one for CPUs, so that programs with them can be run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda import attention, conv, gemm


@gemm.cuda_gemm.register_kernel("cpu")
def _gemm(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, activation: int) -> Tensor:
    product = alpha * (a @ b)
    return BY_NUMBER[activation](product if bias is None else product + bias).contiguous()


@attention.cuda_attention.register_kernel("cpu")
def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=True)
    return y.transpose(1, 2).contiguous().transpose(1, 2)


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
) -> Tensor:
    y = torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return BY_NUMBER[activation](y).movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
