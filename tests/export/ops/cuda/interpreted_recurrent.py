"""Compares the kernel of recurrent layers with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export.ops.cuda import recurrent
from aotpack.export.ops.cuda.recurrent import StepTile
from tests.export.ops.cuda.interpreter import interpreted

_BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}
_VECTOR = StepTile(2, 2, 32, 4, matrix=False)
_MATRIX = StepTile(16, 16, 16, 4, matrix=True)


def step(call: Any) -> Tensor:
    """Runs the kernel; what no step writes to is nan."""
    if call.arguments["FIRST"]:
        call.arguments["out"].fill_(float("nan"))
    return interpreted(call)


def check(cell: Any, dtype: torch.dtype, rows: int, hidden: int, steps: int, *, bias: bool, reverse: bool) -> None:
    layer = cell(3, hidden, bias=bias).double()
    x, states = torch.randn(steps, rows, 3).double(), torch.randn(2, rows, hidden).double()
    weight_ih, weight_hh, *biases = (value.detach() for value in layer.parameters())
    bias_ih, bias_hh = biases or (None, None)
    contributed = F.linear(x, weight_ih, bias_ih).to(dtype)
    given = (contributed, weight_hh.to(dtype), None if bias_hh is None else bias_hh.to(dtype))
    first = (states.mT.contiguous().mT.to(dtype))[: 2 if cell is nn.LSTM else 1]
    function = recurrent.lstm_layer if cell is nn.LSTM else recurrent.gru_layer
    y, *last = function(*given, *first, reverse, step)
    initial = tuple(states[:, None]) if cell is nn.LSTM else states[:1]
    with torch.no_grad():
        wanted, finals = layer(x.flip(0) if reverse else x, initial)
    wanted = wanted.flip(0) if reverse else wanted
    finals = finals if cell is nn.LSTM else (finals,)
    for found, expected in zip((y, *last), (wanted, *(final[0] for final in finals)), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=_BOUNDS[dtype])


def main() -> None:
    torch.manual_seed(0)
    for tile, cell in itertools.product((_VECTOR, _MATRIX), (nn.LSTM, nn.GRU)):
        recurrent.choose = lambda *_, tile=tile, **__: tile  # type: ignore[assignment]
        check(cell, torch.float32, 3, 7, 3, bias=True, reverse=False)
        check(cell, torch.float32, 1, 5, 2, bias=False, reverse=True)
        # Sizes that end no block.
        check(cell, torch.float16, 17 if tile.matrix else 3, 33, 1, bias=True, reverse=True)
        if not tile.matrix:
            # The interpreter has no products of bfloat16.
            check(cell, torch.bfloat16, 1, 40, 2, bias=True, reverse=False)


if __name__ == "__main__":
    main()
