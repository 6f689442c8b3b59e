"""Attention with the sums that its backward needs, and the backward, against eager in double."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tests.module_ops.cases import arrange
from tests.module_ops.harness import Driver, MakeDriver, OperatorError


@pytest.fixture(scope="module", params=[None, ("-O2", "-march=native")], ids=["sanitized", "native"])
def attention_driver(request: pytest.FixtureRequest, make_driver: MakeDriver) -> Driver:
    return make_driver("attention_driver", ["attention"], request.param)


def reference(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None, dy: Tensor
) -> tuple[Tensor, ...]:
    """y, lse and the gradients of q, k and v, in double; a query without a key has no part in any of it."""
    q, k, v = (t.double().requires_grad_() for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(-2, -1) * (q.shape[3] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.double()
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    none = (scores == -torch.inf).all(-1, keepdim=True)
    lse = scores.logsumexp(-1)
    weights = torch.softmax(scores.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)
    y = weights @ v.repeat_interleave(group, 1)
    return (y.detach(), lse.detach(), *torch.autograd.grad(y, (q, k, v), dy.double()))


def arrange_same(generator: random.Random, x: Tensor) -> Tensor:
    """The same elements in another memory layout."""
    return generator.choice([x, x.transpose(1, 2).contiguous().transpose(1, 2), x.mT.contiguous().mT])


def close(got: Tensor, want: Tensor, tolerance: float) -> None:
    assert got.shape == want.shape
    finite = want.isfinite()
    assert torch.equal(got[~finite].double(), want[~finite])
    if finite.any():
        error = (got[finite].double() - want[finite]).abs().max()
        assert float(error) <= tolerance * max(1.0, float(want[finite].abs().max()))


CASES = [
    # batch, heads, key heads, queries, keys, dim, causal, scale
    (2, 4, 4, 9, 12, 16, False, None),
    (1, 3, 3, 65, 130, 5, False, 0.3),
    (1, 4, 2, 70, 33, 24, True, None),
    (2, 2, 1, 130, 257, 33, True, 0.2),
    (1, 2, 2, 1, 300, 8, False, None),
    (1, 2, 2, 5, 1, 1, True, None),
    (3, 2, 2, 0, 7, 8, False, None),
    (3, 2, 2, 7, 0, 8, False, None),
    (0, 2, 2, 7, 3, 8, False, None),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_attention(attention_driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(5)
    tolerance = {torch.float64: 1e-12, torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for number, (batch, heads, key_heads, queries, keys, dim, causal, scale) in enumerate(CASES):
        for kind in range(4):
            torch.manual_seed(100 * number + kind)
            q = arrange(generator, torch.randn(batch, heads, queries, dim).to(dtype))
            k = arrange(generator, torch.randn(batch, key_heads, keys, dim).to(dtype))
            v = arrange(generator, torch.randn(batch, key_heads, keys, dim).to(dtype))
            dy = arrange(generator, torch.randn(batch, heads, queries, dim).to(dtype))
            out = torch.rand(generator.choice([(queries, keys), (batch, 1, 1, keys), (heads, queries, 1)])) < 0.3
            mask = {
                0: None,
                1: ~out,
                2: torch.randn(out.shape).masked_fill(out, -torch.inf).to(dtype),
                3: arrange(generator, torch.randn(batch, heads, queries, keys)),
            }[kind]
            ints = [int(causal), int(scale is not None)]
            y, lse = attention_driver("attention_with_lse", [q, k, v, mask], ints, scale or 0.0, threads=2)
            want = reference(q, k, v, mask, causal, scale, dy)
            close(y, want[0], tolerance)
            close(lse, want[1], 1e-5 if dtype != torch.float64 else tolerance)
            assert lse.transpose(1, 2).is_contiguous()
            assert lse.dtype == (dtype if dtype == torch.float64 else torch.float32)
            # The backward gets what an exact forward would have left, rounded: errors do not add up.
            given = [dy, q, k, v, arrange_same(generator, want[0].to(dtype)), want[1].to(lse.dtype), mask]
            threads = generator.choice([1, 2])
            gradients = attention_driver("attention_backward", given, ints, scale or 0.0, threads=threads)
            for gradient, right in zip(gradients, want[2:], strict=True):
                assert gradient.transpose(1, 2).is_contiguous()
                close(gradient, right, 2 * tolerance)


def test_a_mask_of_another_dtype_is_refused(attention_driver: Driver) -> None:
    q = torch.randn(1, 1, 2, 4)
    with pytest.raises(OperatorError, match="attention does not support a mask of int64"):
        attention_driver("attention_with_lse", [q, q, q, torch.ones(2, 2, dtype=torch.int64)], [0, 0])
