"""The pass that calls the kernel of attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.cuda import attention
from aotpack.export.passes.cuda.pipeline import CUDA
from aotpack.export.passes.cuda.use_attention import use_attention
from tests.export.pass_checks import calls, run

sdpa = F.scaled_dot_product_attention


def _inputs(heads: int = 3, key_heads: int = 3, dim: int = 8, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    q, k = torch.randn(2, heads, 4, dim), torch.randn(2, key_heads, 5, dim)
    return q.to(dtype), k.to(dtype), torch.randn(k.shape).to(dtype)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (sdpa, _inputs()),
        (sdpa, _inputs(dim=256)),
        (lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.2), _inputs()),
        (lambda q, k, v: sdpa(q, k, v, enable_gqa=True), _inputs(heads=6, key_heads=2)),
        (lambda q, k, v: sdpa(q, k, v, q[:, :1, :, :5] > -9), _inputs()),
        (lambda q, k, v: sdpa(q, k, v, q[0, 0, :, :5]), _inputs()),
    ],
    ids=["plain", "largest head", "causal", "grouped", "bool mask", "added mask"],
)
def test_is_sent_to_the_kernel(function: Any, inputs: tuple[Tensor, ...]) -> None:
    assert len(calls(run(function, inputs, use_attention), attention.OPERATOR)) == 1


@pytest.mark.parametrize(
    "inputs",
    [_inputs(dim=264), _inputs(dtype=torch.float64), tuple(t[0] for t in _inputs())],
    ids=["large head", "double", "no batch"],
)
def test_others_stay(inputs: tuple[Tensor, ...]) -> None:
    assert not calls(run(sdpa, inputs, use_attention), attention.OPERATOR)


def test_a_view_of_the_result_depends_on_no_layout() -> None:
    # Eager's result has the layout of the queries: positions first.
    def flat(q: Tensor) -> Tensor:
        q = q.permute(1, 2, 0, 3)
        return sdpa(q, q, q).permute(2, 0, 1, 3).view(18, 64) + 1

    # The checks of a pass compare its values with the captured program's.
    assert len(calls(run(flat, (torch.randn(9, 2, 4, 16),), *(step.step for step in CUDA)), attention.OPERATOR)) == 1
