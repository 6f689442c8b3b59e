"""Attention through archives: every way that torch spells it, with gradients, compared with eager in double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack import Dim
from tests.export.conftest import Build, assert_close, check

sdpa = F.scaled_dot_product_attention


def gradients(function: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.detach().requires_grad_() for t in tensors]
    y = function(*leaves)
    weights = torch.linspace(-1, 1, y.shape[-1], dtype=y.dtype)
    return (y.detach(), *torch.autograd.grad((y * weights).sum(), leaves))


class Spellings(nn.Module):
    """Forward alone, in the ways that are not sent to the packed kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(32, 4, batch_first=True, kdim=16, vdim=16)
        self.self_attention = nn.MultiheadAttention(32, 4, add_bias_kv=True, add_zero_attn=True)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoderLayer(32, 4, 48, batch_first=True, activation="gelu")

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, x: Tensor, memory: Tensor) -> list[Any]:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        padding = keep[:, 0, 0]
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return [
            *flash(q, k, v),
            *flash(q, k, v, is_causal=True, attn_mask=None, scale=0.4),
            # Results that lie as the query does are viewed without being copied.
            flash(q, k, v)[0].view(-1, q.shape[-1]),
            sdpa(q[0], k[0], v[0]),
            sdpa(q, k, v[..., :3]),
            sdpa(q.double(), k.double(), v.double(), keep),
            sdpa(q.double(), k[:, :2].double(), v[:, :2].double(), is_causal=True, enable_gqa=True),
            sdpa(q[..., :0], k[..., :0], v[..., :0]),
            sdpa(q[:, :, :0], k, v),
            sdpa(q, k[:, :, :0], v[:, :, :0]),
            torch.ops.aten._scaled_dot_product_attention_math(q, k, v),
            torch.func.vmap(lambda a, b, c: sdpa(a, b, c))(q, k, v),
            self.mha(x, memory, memory, key_padding_mask=~padding),
            self.mha(x, memory, memory, need_weights=False),
            self.self_attention(x, x, x, average_attn_weights=False),
            self.encoder(x, src_key_padding_mask=~padding[:, : x.shape[1]]),
            self.decoder(x, x, tgt_mask=causal, tgt_is_causal=True),
        ]


def test_spellings(build: Build) -> None:
    model = Spellings().eval()

    def call() -> tuple[Tensor, ...]:
        q, k = torch.randn(2, 4, 7, 8), torch.randn(2, 4, 11, 8)
        keep = torch.rand(2, 1, 1, 11) > 0.3
        keep[..., :2] = True
        return q, k, torch.randn(2, 4, 11, 8), keep, torch.randn(2, 7, 32), torch.randn(2, 11, 16)

    archive = build(model, call())
    check(archive, model, call(), call(), tolerance=1e-5)


class Gradients(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, added: Tensor) -> dict[str, Any]:
        by_position = q.transpose(1, 2).contiguous().transpose(1, 2)
        return {
            "plain": gradients(sdpa, q, k, v),
            "causal": gradients(lambda a, b, c: sdpa(a, b, c, is_causal=True, scale=0.3), by_position, k, v),
            "kept": gradients(lambda a, b, c: sdpa(a, b, c, keep), q, k, v),
            "added": gradients(lambda a, b, c: sdpa(a, b, c, added), q, k, v),
            "mask": gradients(sdpa, q, k, v, added),
            "groups": gradients(lambda a, b, c: sdpa(a, b, c, enable_gqa=True), q, k[:, :2], v[:, :2]),
            "second": gradients(lambda a: gradients_of_norm(a, k, v), q),
        }


def gradients_of_norm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        (gradient,) = torch.autograd.grad(sdpa(q, k, v).square().sum(), q, create_graph=True)
    return gradient


def operands(dtype: torch.dtype, batch: int, queries: int, keys: int) -> tuple[Tensor, ...]:
    keep = torch.rand(batch, 1, queries, keys) > 0.3
    keep[..., 0] = True
    q, k, v = (torch.randn(batch, 4, n, 16, dtype=dtype) for n in (queries, keys, keys))
    return q, k, v, keep, torch.randn(1, 4, queries, keys, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12), (torch.bfloat16, 4e-2)], ids=str
)
def test_gradients(build: Build, dtype: torch.dtype, tolerance: float) -> None:
    model = Gradients()
    batch, length, keys = Dim("batch", max=8), Dim("length", max=200), Dim("keys", max=300)
    shapes = {
        "q": {0: batch, 2: length},
        "k": {0: batch, 2: keys},
        "v": {0: batch, 2: keys},
        "keep": {0: batch, 2: length, 3: keys},
        "added": {2: length, 3: keys},
    }
    archive = build(model, operands(dtype, 2, 9, 12), dynamic_shapes=shapes if dtype == torch.float32 else None)
    for sizes in ((2, 9, 12), (3, 70, 130)) if dtype == torch.float32 else ((2, 9, 12),):
        call = operands(dtype, *sizes)
        expected = model(*(t.double() if t.is_floating_point() else t for t in call))
        for _ in range(2):
            assert_close(archive(*call), expected, tolerance)


def test_dropout_in_attention(build: Build) -> None:
    """Kept weights are scaled up: with values of one, the mean of a query's sum is one, and its gradient is dy's."""

    def attend(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        v = torch.ones_like(k).requires_grad_()
        y = sdpa(q, k, v, dropout_p=0.25)
        return y.detach(), torch.autograd.grad(y.sum(), v)[0]

    archive = build(attend, (torch.randn(4, 8, 64, 16), torch.randn(4, 8, 64, 16)))
    y, gradient = archive(torch.zeros(4, 8, 64, 16), torch.zeros(4, 8, 64, 16))
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    # Of 64 equal weights each is dropped with a probability of 1/4: sums vary by sqrt(p / (1 - p) / 64).
    assert y[..., 0].std().item() == pytest.approx((0.25 / 0.75 / 64) ** 0.5, rel=0.15)
    assert gradient.sum().item() == pytest.approx(y.sum().item(), rel=1e-4)
