"""Recurrent layers unrolled, as TorchInductor gets those that have no packed weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotpack.export.decompositions.nn import rnn


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_unrolled(kind: str, bias: bool, first: bool, both: bool, steps: int) -> None:
    network = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(
        6, 4, 2, bias=bias, batch_first=first, bidirectional=both, dtype=torch.float64
    )
    states = [torch.randn(4 if both else 2, 3, 4, dtype=torch.float64) for _ in range(2 if kind == "lstm" else 1)]
    x = torch.randn(steps, 3, 6, dtype=torch.float64)
    x = x.transpose(0, 1) if first else x
    weights: list[Tensor] = [w.detach() for w in network.parameters()]
    cell = rnn._lstm_cell if kind == "lstm" else rnn._gru_cell
    got = rnn._unrolled(cell, x, states, weights, bias, 2, both, first)
    if steps == 0:  # which torch refuses
        assert got[0].shape == ((3, 0) if first else (0, 3)) + (8 if both else 4,)
        assert all(torch.equal(g, s) for g, s in zip(got[1:], states, strict=True))
        return
    with torch.no_grad():
        y, last = network(x, tuple(states) if kind == "lstm" else states[0])
    for g, w in zip(got, [y, *(last if kind == "lstm" else [last])], strict=True):
        torch.testing.assert_close(g, w, rtol=1e-12, atol=1e-12)
    by_steps = got[0].transpose(0, 1) if first else got[0]
    assert by_steps.is_contiguous()
