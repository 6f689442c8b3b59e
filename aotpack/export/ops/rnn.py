"""Recurrent layers with packed weights."""

from __future__ import annotations

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
