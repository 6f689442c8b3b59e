"""Compares the kernel of attention with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.cuda.attention_kernel import attention_kernel

# Not bfloat16: the interpreter multiplies its bits as integers.
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3}
TILE = {"BLOCK_M": 16, "BLOCK_N": 32}


def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    (batch, heads, length, dim), (_, key_heads, keys, value_dim) = q.shape, v.shape
    out = torch.full((batch, length, heads, value_dim), float("nan"), dtype=q.dtype)
    over = q if mask is None else mask.expand(batch, heads, length, keys)
    attention_kernel[(-(-length // TILE["BLOCK_M"]) * batch * heads,)](
        q, k, v, over, out, q, length, keys, heads, *q.stride(), *k.stride(), *v.stride(), *over.stride(),
        SCALE=scale, GROUP=heads // key_heads, DIM=dim, VALUE_DIM=value_dim,
        MASK=0 if mask is None else 1 if mask.dtype == torch.bool else 2, CAUSAL=causal,
        BLOCK_D=max(16, 1 << (dim - 1).bit_length()), BLOCK_VD=max(16, 1 << (value_dim - 1).bit_length()), **TILE,
    )  # fmt: skip
    return out.transpose(1, 2)


def check(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
) -> None:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    precise = None if mask is None else mask if mask.dtype == torch.bool else mask.double()
    wanted = F.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), precise, is_causal=causal, scale=scale, enable_gqa=True
    )
    found = run(q, k, v, mask, causal, scale).double()
    error = (found - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    assert error <= BOUNDS[q.dtype], (q.shape, v.shape, q.dtype, causal, float(error))


def inputs(
    *, batch: int = 2, heads: int = 2, key_heads: int = 2, length: int = 20, keys: int = 40, dim: int = 16,
    value_dim: int = 16, dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    q = torch.randn(batch, heads, length, dim)
    k, v = torch.randn(batch, key_heads, keys, dim), torch.randn(batch, key_heads, keys, value_dim)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def main() -> None:
    torch.manual_seed(0)
    for length, keys in itertools.product((1, 16, 37), (1, 32, 45, 64)):
        check(*inputs(batch=1, length=length, keys=keys))
        check(*inputs(batch=1, length=length, keys=keys), causal=True)
    for dim, value_dim in ((1, 3), (16, 24), (40, 16)):
        check(*inputs(dim=dim, value_dim=value_dim))
    for dtype in BOUNDS:
        check(*inputs(dtype=dtype), scale=0.3)
        # Grouped queries, other strides, and keys for the whole batch.
        q, k, v = inputs(heads=6, key_heads=2, dtype=dtype)
        check(q.transpose(1, 2).contiguous().transpose(1, 2), k.mT.contiguous().mT, v[:1].expand(2, -1, -1, -1))
    q, k, v = inputs()
    for shape in ((2, 2, 20, 40), (2, 1, 20, 40), (1, 1, 1, 40), (20, 1), (1, 40)):
        check(q, k, v, torch.rand(shape) < 0.6)
        check(q, k, v, torch.randn(shape))
    # Rows without keys, those whose first blocks are all masked, and masks of the lowest number.
    some = torch.rand(2, 1, 20, 40) < 0.5
    some[0, 0, 3] = False
    some[1, 0, :, :32] = False
    lowest = torch.finfo(torch.float32).min
    for hidden in (-torch.inf, lowest):
        check(q, k, v, torch.zeros(some.shape).masked_fill(~some, hidden))
    check(q, k, v, some)
    check(100 * q, 100 * k, v)


if __name__ == "__main__":
    main()
