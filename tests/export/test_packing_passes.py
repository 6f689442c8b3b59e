"""Passes that send work to kernels of ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.passes.cpu.pack_attention import pack_attention
from aotpack.export.passes.cpu.pack_conv import pack_conv
from aotpack.export.passes.cpu.pack_embedding_bag import pack_embedding_bag
from aotpack.export.passes.cpu.pack_rnn import pack_rnn
from tests.export.pass_checks import Weights, calls, count, operators, run

aten = torch.ops.aten


class TestConv:
    @pytest.mark.parametrize(
        ("model", "sizes"),
        [
            (nn.Conv1d(3, 35, 3, stride=2, padding=1), (2, 3, 9)),
            (nn.Conv2d(3, 4, (3, 2), stride=(1, 2), dilation=2, bias=False), (2, 3, 9, 8)),
            (nn.Conv3d(3, 4, 2, padding=1), (2, 3, 4, 5, 3)),
            (nn.Conv2d(6, 6, 3, groups=6), (1, 6, 5, 5)),
            (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 5, 5)),
            (nn.Conv2d(3, 4, 3, padding="same", dilation=2), (1, 3, 5, 6)),
            (nn.Conv2d(3, 4, 3, padding="valid"), (1, 3, 5, 6)),
            (nn.Conv2d(3, 4, 2, padding_mode="circular", padding=1), (1, 3, 5, 6)),
            (nn.ConvTranspose1d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5)),
            (nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=1, groups=2), (2, 4, 5, 4)),
            (nn.ConvTranspose3d(2, 3, 2, dilation=2, bias=False), (1, 2, 3, 3, 3)),
        ],
        ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
    )
    def test_convolutions_with_constant_weights_are_packed(self, model: nn.Module, sizes: tuple[int, ...]) -> None:
        after = run(model.eval(), (torch.randn(sizes),), pack_conv)
        (call,) = calls(after, ops.packed_conv)
        assert not {"aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default"} & set(operators(after))
        # What is promised of strides is what the reference does.
        assert after.graph_module(torch.randn(sizes))[0].stride() == call.meta["val"].stride()

    def test_uneven_same_padding_is_made_explicit(self) -> None:
        model = nn.Conv2d(3, 4, (2, 5), padding="same", dilation=(3, 1)).eval()
        after = run(model, (torch.randn(1, 3, 7, 8),), pack_conv)
        assert operators(after) == ["aten.constant_pad_nd.default", "aotpack.packed_conv.default"]

    def test_unbatched_inputs(self) -> None:
        after = run(nn.Conv2d(3, 4, 3).eval(), (torch.randn(3, 6, 7),), pack_conv)
        assert operators(after) == ["aten.unsqueeze.default", "aotpack.packed_conv.default", "aten.squeeze.dim"]

    def test_the_general_operator(self) -> None:
        def function(x: Tensor, w: Tensor) -> Tensor:
            return torch.ops.aten.convolution(x, w, None, [2], [1], [1], True, [1], 1)

        after = run(Weights(function, torch.randn(3, 4, 3, 3)), (torch.randn(1, 3, 5, 5),), pack_conv)
        assert operators(after) == ["aotpack.packed_conv.default"]

    def test_weights_that_are_not_constant_or_of_other_dtypes_stay(self) -> None:
        model = Weights(lambda x, w: F.conv2d(x, w * x.sum()), torch.randn(4, 3, 3, 3))
        assert count(run(model, (torch.randn(1, 3, 5, 5),), pack_conv), ops.packed_conv) == 0
        double = nn.Conv2d(3, 4, 3).double()
        x = torch.randn(1, 3, 5, 5, dtype=torch.float64)
        assert count(run(double, (x,), pack_conv), ops.packed_conv) == 0

    def test_dynamic_sizes(self) -> None:
        model = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1).eval()
        shapes = {"input": {0: Dim("n"), 2: Dim("h"), 3: Dim("w")}}
        x, other = torch.randn(2, 3, 5, 6), torch.randn(3, 3, 4, 9)
        after = run(model, (x,), pack_conv, dynamic_shapes=shapes, other_args=(other,))
        assert count(after, ops.packed_conv) == 1


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

    def test_dynamic_lengths(self) -> None:
        n, length = Dim("n"), Dim("length")
        shapes = {name: {0: n, 2: length} for name in ("q", "k", "v")}
        inputs, other = attention_inputs((2, 3, 4, 8), (2, 3, 4, 8)), attention_inputs((3, 3, 7, 8), (3, 3, 7, 8))

        def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        after = run(function, inputs, pack_attention, dynamic_shapes=shapes, other_args=other)
        assert count(after, ops.attention) == 1


class TestRecurrent:
    @pytest.mark.parametrize("batch_first", [False, True])
    @pytest.mark.parametrize("both", [False, True])
    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
    def test_layers_and_directions(self, cell: Any, bias: bool, both: bool, batch_first: bool) -> None:
        model = cell(3, 5, num_layers=2, bias=bias, bidirectional=both, batch_first=batch_first).eval()
        shapes = {"input": {0: Dim("a", max=64), 1: Dim("b", max=64)}}
        x, other = torch.randn(4, 2, 3), torch.randn(6, 3, 3)
        after = run(model, (x,), pack_rnn, dynamic_shapes=shapes, other_args=(other,))
        layer = ops.lstm_layer if cell is nn.LSTM else ops.gru_layer
        found = calls(after, layer)
        assert [bound_arguments(call)["reverse"] for call in found] == ([False, True] if both else [False]) * 2
        assert count(after, *_RECURRENT) == 0

    def test_given_states(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm, self.gru = nn.LSTM(3, 4), nn.GRU(4, 4)

            def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Any:
                y, states = self.lstm(x, (h, c))
                return states, self.gru(y, h)

        args = (torch.randn(5, 2, 3), torch.randn(1, 2, 4), torch.randn(1, 2, 4))
        after = run(Model().eval(), args, pack_rnn)
        assert (count(after, ops.lstm_layer), count(after, ops.gru_layer)) == (1, 1)

    @pytest.mark.parametrize("model", [nn.LSTM(3, 4, proj_size=2), nn.GRU(3, 4).double()], ids=["projection", "double"])
    def test_other_networks_stay(self, model: nn.Module) -> None:
        x = torch.randn(5, 2, 3, dtype=next(model.parameters()).dtype)
        after = run(model.eval(), (x,), pack_rnn)
        assert count(after, ops.lstm_layer, ops.gru_layer) == 0

    def test_unbatched_inputs(self) -> None:
        after = run(nn.GRU(3, 4).eval(), (torch.randn(5, 3),), pack_rnn)
        assert count(after, ops.gru_layer) == 1


_RECURRENT = (aten.lstm.input, aten.gru.input, torch.ops.aotpack.lstm.default, torch.ops.aotpack.gru.default)


class TestEmbeddingBag:
    @pytest.mark.parametrize("mode", ["sum", "mean", "max"])
    @pytest.mark.parametrize("padding", [None, 2, -1])
    @pytest.mark.parametrize("last", [False, True])
    def test_pooled_results(self, mode: str, padding: int | None, last: bool) -> None:
        model = nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding, include_last_offset=last)
        args = (torch.tensor([1, 2, 8, 2, 0, 8, 4]), torch.tensor([0, 3, 3, 7] if last else [0, 3, 3]))
        after = run(model.eval(), args, pack_embedding_bag)
        assert operators(after) == ["aotpack.embedding_bag.default"]

    def test_weights_per_sample(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bag = nn.EmbeddingBag(9, 4, mode="sum")

            def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
                return self.bag(indices, offsets, per_sample_weights=weights)

        args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]), torch.randn(3))
        assert count(run(Model().eval(), args, pack_embedding_bag), ops.embedding_bag) == 1

    def test_readers_of_other_results_keep_the_operator(self) -> None:
        def function(i: Tensor, o: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            return torch.ops.aten.embedding_bag(w, i, o, False, 1)[:2]

        args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]), torch.randn(9, 4))
        assert count(run(function, args, pack_embedding_bag), ops.embedding_bag) == 0

    def test_other_dtypes_stay(self) -> None:
        args = (torch.tensor([1, 2, 8]), torch.tensor([0, 1]))
        assert count(run(nn.EmbeddingBag(9, 4).double(), args, pack_embedding_bag), ops.embedding_bag) == 0
