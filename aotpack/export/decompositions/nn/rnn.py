"""Recurrent layers without packed weights: of doubles, or with weights that the model computes.

They are unrolled, so that the number of steps must be fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from aotpack.export.decompositions.table import decomposes, fixed
from aotpack.export.ops.recurrent import gru, lstm

_State = tuple[Tensor, ...]
# The state after a step, from what the step's input has contributed to the gates and the state before; h comes first.
_Cell = Callable[[Tensor, _State, Tensor, "Tensor | None"], _State]


def _lstm_cell(x: Tensor, state: _State, w_hh: Tensor, b_hh: Tensor | None) -> _State:
    h, c = state
    i, f, g, o = (x + functional.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru_cell(x: Tensor, state: _State, w_hh: Tensor, b_hh: Tensor | None) -> _State:
    (h,) = state
    xr, xz, xn = x.chunk(3, -1)
    hr, hz, hn = functional.linear(h, w_hh, b_hh).chunk(3, -1)
    n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    z = torch.sigmoid(xz + hz)
    return (((1 - z) * n + z * h),)


def _unrolled(
    cell: _Cell,
    x: Tensor,
    initial: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    both: bool,
    first: bool,
) -> Any:
    """Output, and the state after the last step, [layers * directions, batch, hidden] each."""
    if not fixed(x.shape[1 if first else 0]):
        return NotImplemented
    if first:
        x = x.transpose(0, 1)
    directions, per_layer = (2 if both else 1), (4 if has_biases else 2)
    finals: list[_State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            w_ih, w_hh, *biases = params[index * per_layer : (index + 1) * per_layer]
            b_ih, b_hh = biases or (None, None)
            state = tuple(part[index] for part in initial)
            projected = functional.linear(x, w_ih, b_ih)
            steps: list[Tensor] = []
            for t in reversed(range(x.shape[0])) if direction else range(x.shape[0]):
                state = cell(projected[t], state, w_hh, b_hh)
                steps.append(state[0])
            ordered = steps[::-1] if direction else steps
            outputs.append(torch.stack(ordered) if steps else x.new_empty((0, x.shape[1], w_hh.shape[1])))
            finals.append(state)
        x = torch.cat(outputs, -1) if both else outputs[0]
    # Results by steps: what the operators' fake implementations state.
    return (x.transpose(0, 1) if first else x, *(torch.stack(parts) for parts in zip(*finals, strict=True)))


@decomposes(lstm)
def _lstm(
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    return _unrolled(_lstm_cell, input, (h0, c0), params, has_biases, num_layers, bidirectional, batch_first)


@decomposes(gru)
def _gru(
    input: Tensor,
    h0: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    return _unrolled(_gru_cell, input, (h0,), params, has_biases, num_layers, bidirectional, batch_first)
