"""Recurrent layers with packed weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.registry import define
from aotpack.export.ops.weight_packing import unpack_linear


def _lstm(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    ih, hh = unpack_linear(w_ih, 4 * hidden), unpack_linear(w_hh, 4 * hidden)
    h, c, steps = h0, c0, []
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        i, f, g, o = (F.linear(x[t], ih, b_ih) + F.linear(h, hh, b_hh)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        steps.append(h)
    y = torch.stack(steps[::-1] if reverse else steps) if steps else x.new_empty((0, x.shape[1], hidden))
    return y, h.clone(), c.clone()


def _lstm_fake(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    y = x.new_empty((x.shape[0], x.shape[1], hidden))
    return y, x.new_empty((x.shape[1], hidden)), x.new_empty((x.shape[1], hidden))


def _gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    ih, hh = unpack_linear(w_ih, 3 * hidden), unpack_linear(w_hh, 3 * hidden)
    h, steps = h0, []
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        xr, xz, xn = F.linear(x[t], ih, b_ih).chunk(3, dim=-1)
        hr, hz, hn = F.linear(h, hh, b_hh).chunk(3, dim=-1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        h = (1 - z) * n + z * h
        steps.append(h)
    y = torch.stack(steps[::-1] if reverse else steps) if steps else x.new_empty((0, x.shape[1], hidden))
    return y, h.clone()


def _gru_fake(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    hidden: int,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    return x.new_empty((x.shape[0], x.shape[1], hidden)), x.new_empty((x.shape[1], hidden))


def _lstm_both(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    w_ih_reverse: Tensor,
    w_hh_reverse: Tensor,
    b_ih_reverse: Tensor | None,
    b_hh_reverse: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    hidden: int,
) -> tuple[Tensor, Tensor, Tensor]:
    y, h, c = _lstm(x, w_ih, w_hh, b_ih, b_hh, h0[0], c0[0], hidden, False)
    back, h_back, c_back = _lstm(x, w_ih_reverse, w_hh_reverse, b_ih_reverse, b_hh_reverse, h0[1], c0[1], hidden, True)
    return torch.cat((y, back), 2), torch.stack((h, h_back)), torch.stack((c, c_back))


def _lstm_both_fake(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, h0, c0, hidden = arguments
    y = x.new_empty((x.shape[0], x.shape[1], 2 * hidden))
    return y, h0.new_empty((2, x.shape[1], hidden)), c0.new_empty((2, x.shape[1], hidden))


def _gru_both(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    w_ih_reverse: Tensor,
    w_hh_reverse: Tensor,
    b_ih_reverse: Tensor | None,
    b_hh_reverse: Tensor | None,
    h0: Tensor,
    hidden: int,
) -> tuple[Tensor, Tensor]:
    y, h = _gru(x, w_ih, w_hh, b_ih, b_hh, h0[0], hidden, False)
    back, h_back = _gru(x, w_ih_reverse, w_hh_reverse, b_ih_reverse, b_hh_reverse, h0[1], hidden, True)
    return torch.cat((y, back), 2), torch.stack((h, h_back))


def _gru_both_fake(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *_, h0, hidden = arguments
    return x.new_empty((x.shape[0], x.shape[1], 2 * hidden)), h0.new_empty((2, x.shape[1], hidden))


lstm_layer = define(
    "lstm_layer(Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor h0, Tensor c0, int hidden, "
    "bool reverse) -> (Tensor, Tensor, Tensor)",
    _lstm,
    _lstm_fake,
)
gru_layer = define(
    "gru_layer(Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor h0, int hidden, "
    "bool reverse) -> (Tensor, Tensor)",
    _gru,
    _gru_fake,
)
# Both directions of a layer at once. States are [2, batch, hidden].
_BOTH = (
    "Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor w_ih_reverse, Tensor w_hh_reverse, "
    "Tensor? b_ih_reverse, Tensor? b_hh_reverse"
)
lstm_both = define(
    f"lstm_both({_BOTH}, Tensor h0, Tensor c0, int hidden) -> (Tensor, Tensor, Tensor)", _lstm_both, _lstm_both_fake
)
gru_both = define(f"gru_both({_BOTH}, Tensor h0, int hidden) -> (Tensor, Tensor)", _gru_both, _gru_both_fake)
