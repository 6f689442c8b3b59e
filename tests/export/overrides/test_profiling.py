"""Ranges for the profiler in a model, above autograd and below it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from tests.export.conftest import Build, assert_close

pytestmark = pytest.mark.torch


class Ranged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with record_function("derivative"):
            x = x.requires_grad_()
            return torch.autograd.grad(x.sin().sum(), x)[0]


def test_ranges_are_left_out(build: Build) -> None:
    x = torch.randn(5)
    assert_close(build(Ranged(), (x,))(x), x.cos())
