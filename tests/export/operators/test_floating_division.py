"""Remainders and rounded quotients of floating numbers are eager's: exact, whatever the quotient's size."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from tests.support.building import Build

pytestmark = pytest.mark.torch

# Quotients to 1e30: eager's own fmod is NaN from 1e38 on.
_NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    3.0,
    7.25,
    -0.1,
    0.3,
    1e-20,
    -1e10,
    1e10,
    16777217.0,
    torch.inf,
    -torch.inf,
    torch.nan,
]


def _all(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        torch.remainder(x, y),
        torch.fmod(x, y),
        torch.floor_divide(x, y),
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
        x % 0.3,
        -2.5 % y,
        x // -0.1,
        torch.remainder(x, 3),
        torch.remainder((x.nan_to_num(0.0, 9.0, 9.0) * 4).clamp(-99, 99).long(), y),
    ]


class Divisions(torch.nn.Module):
    def forward(self, single: list[Tensor], double: list[Tensor], half: list[Tensor]) -> list[list[Tensor]]:
        return [_all(*single), _all(*double), [torch.remainder(*half)]]


def test_every_pair_of_numbers(build: Build) -> None:
    # Many more than fit vectors, and a rest; random ones among them.
    torch.manual_seed(0)
    pairs = torch.tensor(list(itertools.product(_NUMBERS, repeat=2)), dtype=torch.float64)
    x, y = torch.cat([pairs, torch.randn(77, 2, dtype=torch.float64) * torch.tensor([1e3, 1.0])]).unbind(1)
    given = tuple([x.to(dtype), y.to(dtype)] for dtype in (torch.float32, torch.float64, torch.bfloat16))
    model = Divisions()
    for actual, expected in zip(build(model, given)(*given), model(*given), strict=True):
        for place, (got, want) in enumerate(zip(actual, expected, strict=True)):
            assert got.dtype == want.dtype
            same = (got == want) & (got.signbit() == want.signbit()) | got.isnan() & want.isnan()
            at = (~same).nonzero().flatten().tolist()
            assert not at, f"result {place} of {want.dtype}, {x[at[0]].item()} and {y[at[0]].item()}: {got[at[0]]}"
