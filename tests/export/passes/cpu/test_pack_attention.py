"""The pass that calls the attention kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.passes.cpu.pack_attention import pack_attention
from tests.export.pass_checks import calls, count, run

aten = torch.ops.aten


def attention_inputs(q: tuple[int, ...], k: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(size, dtype=dtype) for size in (q, k, k)]


class TestAttention:
    @pytest.mark.parametrize(
        ("function", "q", "k"),
        [
            (F.scaled_dot_product_attention, (2, 3, 4, 8), (2, 3, 5, 8)),
            (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 3, 4, 8), (2, 3, 4, 8)),
            (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), (2, 3, 4, 8), (2, 3, 4, 8)),
            (
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
                (2, 6, 4, 8),
                (2, 2, 5, 8),
            ),
            (
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, q[:, :1, :, :5] > 0),
                (2, 3, 4, 8),
                (2, 3, 5, 8),
            ),
            (
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, q[0, 0, :, :5]),
                (2, 3, 4, 8),
                (2, 3, 5, 8),
            ),
        ],
        ids=["plain", "causal", "scale", "grouped", "bool mask", "added mask"],
    )
    def test_is_sent_to_the_kernel(self, function: Any, q: tuple[int, ...], k: tuple[int, ...]) -> None:
        inputs = attention_inputs(q, k)
        # A row of the bool mask without any True has no answer of its own; eager gives zeros or NaN by version.
        inputs[0][..., 0] = inputs[0][..., 0].abs()
        after = run(function, inputs, pack_attention)
        (call,) = calls(after, ops.attention)
        assert after.graph_module(*inputs)[0].stride() == call.meta["val"].stride()

    @pytest.mark.parametrize(
        ("function", "q", "k", "dtype"),
        [
            (
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
                (2, 3, 4, 8),
                (2, 3, 5, 8),
                torch.float32,
            ),
            (F.scaled_dot_product_attention, (3, 4, 8), (3, 5, 8), torch.float32),
            (F.scaled_dot_product_attention, (2, 3, 4, 8), (1, 3, 5, 8), torch.float32),
            (F.scaled_dot_product_attention, (2, 3, 4, 8), (2, 1, 5, 8), torch.float32),
        ],
        ids=["dropout", "three dims", "broadcast batch", "broadcast heads"],
    )
    def test_other_forms_stay(self, function: Any, q: Any, k: Any, dtype: torch.dtype) -> None:
        after = run(function, attention_inputs(q, k, dtype), pack_attention)
        assert count(after, ops.attention) == 0
        assert count(after, aten.scaled_dot_product_attention.default) == 1

    def test_copies_of_transposed_heads_go(self) -> None:
        def heads(x: Tensor) -> Tensor:
            return x.view(2, -1, 3, 8).transpose(1, 2).contiguous()

        def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(heads(q), heads(k), heads(v).clone())

        after = run(function, attention_inputs((2, 4, 24), (2, 5, 24)), pack_attention)
        assert count(after, ops.attention) == 1
        assert count(after, aten.contiguous.default, aten.clone.default) == 0

    def test_copies_that_make_rows_stay(self) -> None:
        def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k.mT.contiguous(), v)

        after = run(
            function, [torch.randn(2, 3, 4, 8), torch.randn(2, 3, 8, 5), torch.randn(2, 3, 5, 8)], pack_attention
        )
        assert (count(after, ops.attention), count(after, aten.contiguous.default)) == (1, 1)

    def test_dynamic_lengths(self) -> None:
        n, length = Dim("n"), Dim("length")
        shapes = {name: {0: n, 2: length} for name in ("q", "k", "v")}
        inputs, other = attention_inputs((2, 3, 4, 8), (2, 3, 4, 8)), attention_inputs((3, 3, 7, 8), (3, 3, 7, 8))

        def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        after = run(function, inputs, pack_attention, dynamic_shapes=shapes, other_args=other)
        assert count(after, ops.attention) == 1
