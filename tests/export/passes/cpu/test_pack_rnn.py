"""The pass that packs recurrent layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.passes.cpu.pack_rnn import pack_rnn
from tests.export.pass_checks import calls, count, run

aten = torch.ops.aten


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
        layer_both = ops.lstm_both if cell is nn.LSTM else ops.gru_both
        assert (count(after, layer), count(after, layer_both)) == ((0, 2) if both else (2, 0))
        assert not any(bound_arguments(call)["reverse"] for call in calls(after, layer))
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
