"""The pass that rewrites attention with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.ops.cuda import attention, gemm
from aotpack.export.passes.cuda.lower_attention_backward import lower_attention_backward
from aotpack.export.passes.cuda.use_attention import use_attention
from aotpack.export.passes.cuda.use_gemm import use_gemm
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import calls, count

aten = torch.ops.aten
sdpa = F.scaled_dot_product_attention
LENGTHS = {
    "q": {2: Dim("queries", min=1, max=64)},
    "k": {2: Dim("keys", min=1, max=64)},
    "v": {2: Dim("keys", min=1, max=64)},
}


def _all_but_one_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask[1] = False
    return sdpa(q, k, v, mask)


@pytest.mark.parametrize(
    ("function", "heads", "key_heads", "shapes"),
    [
        (sdpa, 3, 3, None),
        (lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.2), 3, 3, LENGTHS),
        (lambda q, k, v: sdpa(q, k, v, q[:, :1, :, :1].detach() > k[:, :1, :, 0].detach().unsqueeze(2)), 3, 3, None),
        (lambda q, k, v: sdpa(q, k, v, k[:, :1, :, 0].detach().unsqueeze(2) * 3), 3, 3, LENGTHS),
        (_all_but_one_row, 2, 2, None),
        (lambda q, k, v: sdpa(q, k, v, enable_gqa=True), 6, 2, None),
    ],
    ids=["plain", "causal", "bool mask", "added mask", "a row without keys", "grouped"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients(function: Any, heads: int, key_heads: int, shapes: Any, dtype: torch.dtype) -> None:
    def loss(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        operands = [t.detach().requires_grad_() for t in (q, k, v)]
        y = function(*operands)
        return y.detach(), *torch.autograd.grad((y * (y + 0.5)).sum(), operands)

    def inputs(queries: int, keys: int) -> list[Tensor]:
        return [torch.randn(2, h, n, 8).to(dtype) for h, n in ((heads, queries), (key_heads, keys), (key_heads, keys))]

    program = aot_export(loss, tuple(inputs(5, 6)), dynamic_shapes=shapes)
    program = run_passes(program, (lower_attention_backward, use_attention, use_gemm))
    assert count(program, aten._scaled_dot_product_flash_attention_for_cpu_backward.default) == 0
    assert len(calls(program, attention.OPERATOR)) == 1
    assert len(calls(program, gemm.OPERATOR)) == 5
    for queries, keys in ((5, 6), (1, 1), (17, 4)) if shapes else ((5, 6),):
        given = inputs(queries, keys)
        found, wanted = program.runnable()(*given), loss(*(t.double() for t in given))
        for value, right in zip(found, wanted, strict=True):
            assert value.dtype == dtype and value.shape == right.shape
            bound = 1e-5 if dtype == torch.float32 else 3e-2
            assert (value.double() - right).abs().max() <= bound * right.abs().max().clamp(min=1)


def test_dynamic_heads_stay() -> None:
    def gradient(q: Tensor) -> Tensor:
        q = q.detach().requires_grad_()
        return torch.autograd.grad(sdpa(q, q, q).sum(), (q,))[0]

    dim = Dim("dim", min=2, max=64)
    program = aot_export(gradient, (torch.randn(2, 3, 5, 8),), dynamic_shapes={"q": {3: dim}})
    assert lower_attention_backward(program) is program
