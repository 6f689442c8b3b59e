"""Recurrent networks that are not packed into layers of ours, and gradients of all of them, in one archive a test."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from aotpack.errors import CaptureError
from aotpack.export import aot_export
from tests.export.conftest import Build, assert_close, check


class Networks(nn.Module):
    """Called with 2 or 3 steps, each of which is a copy of the layer in the graph. The two that have what lies between
    layers, a projection and dropout, are two layers deep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(
            {
                "tanh": nn.RNN(6, 4, bidirectional=True),
                "relu": nn.RNN(6, 4, nonlinearity="relu", batch_first=True),
                "projected": nn.LSTM(6, 8, 2, proj_size=3, bidirectional=True),
                "dropped": nn.LSTM(6, 4, 2, dropout=0.5),
                "lstm": nn.LSTM(6, 4, bidirectional=True, batch_first=True),
                "gru": nn.GRU(6, 4, bias=False, bidirectional=True, batch_first=True),
            }
        )
        self.cells = nn.ModuleList([nn.LSTMCell(6, 4), nn.GRUCell(6, 4), nn.RNNCell(6, 4, nonlinearity="relu")])


class Forward(Networks):
    def forward(self, x: Tensor) -> dict[str, Any]:
        results: dict[str, Any] = {name: part(x) for name, part in self.parts.items()}
        results["cells"] = [cell(x[0]) for cell in self.cells]
        results["unbatched"] = self.parts["lstm"](x[0])
        # Weights that are no constants.
        weights = [w * x.mean() for w in self.parts["gru"].parameters()]
        state = x.new_zeros(2, x.shape[1], 4)
        results["computed"] = torch.gru(x, state, weights, False, 1, 0.0, False, True, False)
        return results


def test_networks(build: Build) -> None:
    model = Forward().eval()
    archive = build(model, (torch.randn(3, 2, 6),))
    check(archive, model, (torch.randn(3, 2, 6),), (torch.randn(3, 2, 6) * 3,), tolerance=1e-5)


def test_networks_of_doubles(build: Build) -> None:
    model = Forward().double().eval()
    archive = build(model, (torch.randn(2, 2, 6, dtype=torch.float64),))
    check(archive, model, (torch.randn(2, 2, 6, dtype=torch.float64),), tolerance=1e-12)


class Backward(Networks):
    def forward(self, x: Tensor) -> dict[str, Any]:
        leaf = x.detach().requires_grad_()
        results: dict[str, Any] = {}
        for name, part in self.parts.items():
            y = part(leaf)[0]
            results[name] = torch.autograd.grad(y.square().sum(), [leaf, *part.parameters()])
        for number, cell in enumerate(self.cells):
            y = cell(leaf[0])
            y = y if isinstance(y, Tensor) else y[0] * y[1]
            results[f"cell {number}"] = torch.autograd.grad(y.square().sum(), [leaf, *cell.parameters()])
        return results


def test_gradients_of_networks(build: Build) -> None:
    model = Backward().eval()
    archive = build(model, (torch.randn(2, 2, 6),))
    reference = Backward().double().eval()
    reference.load_state_dict(model.state_dict())
    x = torch.randn(2, 2, 6)
    assert_close(archive(x), reference(x.double()), 1e-5)


def test_packed_sequences_are_refused() -> None:
    """torch cannot trace them: how many sequences are left at a step it reads out of a tensor."""

    def packed(x: Tensor, lengths: Tensor, *weights: Tensor) -> Tensor:
        sequences = pack_padded_sequence(x, lengths, enforce_sorted=False)
        state = x.new_zeros(1, 3, 4)
        return torch.gru(sequences.data, sequences.batch_sizes, state, weights, False, 1, 0.0, False, False)[0]

    weights = (torch.randn(12, 6), torch.randn(12, 4))
    with pytest.raises(CaptureError, match="cannot be captured"):
        aot_export(packed, (torch.randn(5, 3, 6), torch.tensor([2, 5, 4]), *weights))
