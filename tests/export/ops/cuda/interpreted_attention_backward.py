"""Compares the kernels of attention's gradients with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.cuda import attention, attention_backward
from aotpack.export.ops.cuda.attention_backward_rule import GradientTile
from aotpack.export.ops.cuda.attention_rule import AttentionTile
from aotpack.export.ops.cuda.launch import Launch
from tests.export.ops.cuda.interpreted_attention import inputs
from tests.export.ops.cuda.interpreter import interpreted

# Not bfloat16: the interpreter multiplies its bits as integers.
BOUNDS = {torch.float32: 1e-5, torch.float16: 3e-3}
# What kernels write to.
RESULTS = ("out", "statistics", "delta", "value_gradient")


def _launched(call: Launch) -> Tensor:
    for name in RESULTS:
        # The backward reads what the forward and its own first kernel have written.
        reads = (name == "statistics" and "STATISTICS" not in call.arguments) or (
            name == "delta" and "value_gradient" in call.arguments
        )
        if name in call.arguments and not reads:
            call.arguments[name].fill_(float("nan"))
    return interpreted(call)


def _eager(
    operands: tuple[Tensor, ...], mask: Tensor | None, causal: bool, scale: float, dy: Tensor
) -> tuple[Tensor, ...]:
    precise = [t.double().requires_grad_() for t in operands]
    mask = None if mask is None else mask if mask.dtype == torch.bool else mask.double()
    # Of its kernels, those with the scores in memory have the right gradients where all scores are the lowest number.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = F.scaled_dot_product_attention(*precise, mask, is_causal=causal, scale=scale, enable_gqa=True)
    return y.detach(), *torch.autograd.grad(y, precise, dy.double())


def check(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False, scale: float | None = None,
    dy: Tensor | None = None, bound: float = 0.0,
) -> None:  # fmt: skip
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dy = torch.randn(q.shape).to(q.dtype) if dy is None else dy
    wanted = _eager((q, k, v), mask, causal, scale, dy)
    y, statistics = attention.attend_with_statistics(q, k, v, mask, causal, scale, _launched)
    found = attention_backward.attention_gradients(dy, q, k, v, mask, y, statistics, causal, scale, _launched)
    for name, value, right, like in zip(("y", "dq", "dk", "dv"), (y, *found), wanted, (q, q, k, v), strict=True):
        assert value.shape == like.shape and value.dtype == q.dtype
        assert value.transpose(1, 2).is_contiguous()
        if not value.numel():
            continue
        error = (value.double() - right).abs().max() / right.abs().max().clamp(min=1)
        case = (name, q.shape, k.shape, q.dtype, causal, float(error))
        assert error <= (bound or BOUNDS[q.dtype]), case


def same(dim: int = 16, **others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return inputs(dim=dim, value_dim=dim, **others)


def _borders() -> None:
    """Numbers of positions around the tiles, which are smaller on either side."""
    for own, other in ((16, 32), (32, 16)):
        attention_backward.choose_queries = lambda *_, own=own, other=other, **__: GradientTile(own, other, 4, 1)  # type: ignore[assignment]
        attention_backward.choose_keys = attention_backward.choose_queries
        for length, keys in itertools.product((1, 32, 37), (1, 32, 45)):
            check(*same(batch=1, heads=1, key_heads=1, length=length, keys=keys))
            check(*same(batch=1, heads=1, key_heads=1, length=length, keys=keys), causal=True)
        check(*same(batch=1, heads=4, key_heads=2, length=50, keys=34), causal=True)
    # No positions, no keys, no images.
    for sizes in ({"length": 0}, {"keys": 0}, {"batch": 0}):
        check(*same(**sizes))
        check(*same(**sizes), causal=True)


def _operands() -> None:
    """Sizes of heads, dtypes, groups and strides."""
    for dim in (1, 24, 32, 64, 80, 128, 256):
        check(*same(dim, batch=1, heads=1, key_heads=1, length=18, keys=33), causal=dim % 3 == 2)
    for dtype in BOUNDS:
        check(*same(dtype=dtype), scale=0.3)
        q, k, v = same(heads=6, key_heads=2, dtype=dtype)
        q, k, v = q.transpose(1, 2).contiguous().transpose(1, 2), k.mT.contiguous().mT, v[:1].expand(2, -1, -1, -1)
        check(q, k, v, dy=torch.ones(1, dtype=dtype).expand(q.shape))
        check(q, k, v, causal=True, dy=torch.randn(2, 6, 40, 16).to(dtype)[:, :, ::2])
    packed = torch.randn(2, 21, 3, 2, 24)
    check(*packed.permute(2, 0, 3, 1, 4).unbind(), causal=True)


def _masks() -> None:
    q, k, v = same(heads=4, key_heads=2)
    for shape in ((2, 4, 20, 40), (2, 1, 20, 40), (1, 1, 1, 40), (20, 1), (1, 40)):
        check(q, k, v, torch.rand(shape) < 0.6)
        check(q, k, v, torch.randn(shape))
    check(q.half(), k.half(), v.half(), torch.randn(4, 20, 40).half().mT.contiguous().mT)
    # Rows without keys, those whose first blocks are all masked, and masks of the lowest number.
    some = torch.rand(2, 1, 20, 40) < 0.5
    some[0, 0, 3] = False
    some[1, 0, :, :32] = False
    some[1, 0, 5:9] = False
    for hidden in (-torch.inf, torch.finfo(torch.float32).min):
        check(q, k, v, torch.zeros(some.shape).masked_fill(~some, hidden))
    check(q, k, v, some)
    check(10 * q, 10 * k, v, bound=1e-4)


def main() -> None:
    torch.manual_seed(0)
    attention.choose = lambda *_, **__: AttentionTile(16, 32, 4, 1)  # type: ignore[assignment]
    _borders()
    _operands()
    _masks()


if __name__ == "__main__":
    main()
