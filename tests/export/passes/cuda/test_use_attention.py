"""The pass that calls the kernel of attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack import Dim
from aotpack.export.ops.cuda import attention
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
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


def _repeat(x: Tensor) -> Tensor:
    """As transformers writes it."""
    batch, heads, length, dim = x.shape
    return x[:, :, None, :, :].expand(batch, heads, 3, length, dim).reshape(batch, 3 * heads, length, dim)


@pytest.mark.parametrize("repeat", [_repeat, lambda x: x.repeat_interleave(3, 1)], ids=["expand", "interleave"])
def test_repeated_heads_are_read_once(repeat: Any) -> None:
    keys = Dim("keys", 1, 64)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, repeat(k), repeat(v))

    inputs = _inputs(heads=6, key_heads=2)
    shapes = {"q": {}, "k": {2: keys}, "v": {2: keys}}
    (call,) = calls(run(model, inputs, views_to_reshapes, use_attention, dynamic_shapes=shapes), attention.OPERATOR)
    assert [tensor.meta["val"].shape[1] for tensor in call.all_input_nodes] == [6, 2, 2]


@pytest.mark.parametrize(
    "repeat",
    [
        lambda x: x[:, None].expand(2, 3, 2, 5, 8).reshape(2, 6, 5, 8),
        lambda x: x.repeat(1, 3, 1, 1),
        lambda x: x[:, :, :, None].expand(2, 2, 5, 3, 8).reshape(2, 6, 5, 8),
    ],
    ids=["other order", "tiles", "other dim"],
)
def test_heads_in_another_order_are_copied(repeat: Any) -> None:
    inputs = _inputs(heads=6, key_heads=2)
    after = run(lambda q, k, v: sdpa(q, repeat(k), repeat(v)), inputs, views_to_reshapes, use_attention)
    (call,) = calls(after, attention.OPERATOR)
    assert [tensor.meta["val"].shape[1] for tensor in call.all_input_nodes] == [6, 6, 6]


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
