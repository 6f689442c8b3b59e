"""Compares attention with few positions with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.cuda import attention
from aotpack.export.ops.cuda.attention_rule import AttentionTile
from aotpack.export.ops.cuda.decode_kernel import decode_kernel
from tests.export.ops.cuda.interpreted_attention import BOUNDS, inputs
from tests.export.ops.cuda.interpreter import launched


def check(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, unread: tuple[int, ...] = (), bound: float = 0.0
) -> None:
    """Compares; the keys of `unread` are nan, which no row that they are hidden from may have read."""
    scale = 1 / math.sqrt(q.shape[-1])
    precise = None if mask is None else mask if mask.dtype == torch.bool else mask.double()
    wanted = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), precise, scale=scale, enable_gqa=True)
    for keys in unread:
        k, v = k.clone(), v.clone()
        k[:, :, keys], v[:, :, keys] = float("nan"), float("nan")
    calls = []
    found = attention.attend(q, k, v, mask, False, scale, lambda call: launched(call, calls)).double()
    assert calls[0] is decode_kernel
    assert found.shape == wanted.shape
    assert found.transpose(1, 2).is_contiguous()
    error = (found - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    assert error <= (bound or BOUNDS[q.dtype]), (q.shape, v.shape, q.dtype, float(error))


def main() -> None:
    torch.manual_seed(0)
    for splits in (1, 3):
        attention.choose_decode = lambda *_, splits=splits, **__: (AttentionTile(16, 32, 4, 1), splits)  # type: ignore[assignment]
        for length, keys in ((1, 1), (1, 64), (5, 201)):
            check(*inputs(batch=1, heads=6, key_heads=2, length=length, keys=keys))
        # More rows than a block has, other strides, and keys for the whole batch.
        q, k, v = inputs(heads=6, key_heads=1, length=3, keys=70, dtype=torch.float16)
        check(q.transpose(1, 2).contiguous().transpose(1, 2), k.mT.contiguous().mT, v[:1].expand(2, -1, -1, -1))
        check(*inputs(batch=1, heads=8, key_heads=4, length=1, keys=90, dim=40, value_dim=24, dtype=torch.float16))
        q, k, v = inputs(heads=4, key_heads=2, length=2, keys=150)
        for shape in ((2, 4, 2, 150), (2, 1), (1, 150)):
            check(q, k, v, torch.rand(shape) < 0.6)
            check(q, k, v, torch.randn(shape))
        # Rows without keys; keys that no row reads, at both ends.
        some = torch.rand(2, 1, 2, 150) < 0.5
        some[0, 0, 1] = False
        some[..., :70] = False
        some[..., 129:] = False
        check(q, k, v, some, unread=tuple(range(64)))
        check(q, k, v, torch.zeros(some.shape).masked_fill(~some, -torch.inf), unread=tuple(range(64)))
        # A cache that is filled up to a position.
        check(q, k, v, torch.arange(150).view(1, -1) < 37, unread=tuple(range(64, 150)))
        check(q, k, v, torch.zeros(2, 1, 2, 150, dtype=torch.bool), unread=tuple(range(150)))
        # The lowest number hides keys where there are others.
        lowest = torch.finfo(torch.float32).min
        check(q, k, v, torch.zeros(some.shape).masked_fill(~some, lowest))
        check(100 * q, 100 * k, v, bound=1e-4)
    # Splits of one head.
    check(*inputs(heads=1, key_heads=1, length=1, keys=100))
    check(*inputs(batch=1, heads=1, key_heads=1, length=1, keys=1))


if __name__ == "__main__":
    main()
