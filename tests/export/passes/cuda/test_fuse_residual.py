"""The pass that makes additions part of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export.ops.cuda import conv
from aotpack.export.passes.cuda.fuse_activation import fuse_activation
from aotpack.export.passes.cuda.fuse_residual import fuse_residual
from aotpack.export.passes.cuda.use_conv import use_conv
from tests.export.pass_checks import calls, count, run

aten = torch.ops.aten
Join = Callable[[Tensor, Tensor, Tensor], Any]


class _Block(nn.Module):
    def __init__(self, join: Join) -> None:
        super().__init__()
        self.first, self.second, self.join = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1), join

    def forward(self, x: Tensor) -> Any:
        return self.join(x, self.first(x), self.second(x))


def _after(join: Join) -> Any:
    return run(_Block(join).eval(), (torch.randn(2, 4, 5, 6),), use_conv, fuse_residual, fuse_activation)


@pytest.mark.parametrize(
    "join",
    [
        lambda x, a, b: (F.relu(a + x), b),
        lambda x, a, b: (F.relu(x + a), b),
        lambda x, a, b: F.relu(a + b),
        lambda x, a, b: F.relu(b + a),
        # What is added is computed behind the convolution.
        lambda x, a, b: (F.relu(a + x.sin()), b),
    ],
)
def test_is_fused(join: Join) -> None:
    after = _after(join)
    fused = [call for call in calls(after, conv.OPERATOR) if len(call.args) > 10 and call.args[10] is not None]
    assert len(fused) == 1
    assert fused[0].args[9] == 1
    assert count(after, aten.add.Tensor) == count(after, aten.relu.default) == 0


@pytest.mark.parametrize(
    "join",
    [
        lambda x, a, b: (a + x, a, b),
        lambda x, a, b: (a + a, b),
        lambda x, a, b: (torch.add(a, x, alpha=2), b),
        lambda x, a, b: (a + x[:, :1], b),
        lambda x, a, b: (a + 1, b),
        lambda x, a, b: (a + x.double(), b),
        lambda x, a, b: (F.relu(a) + x, b),
    ],
)
def test_others_stay(join: Join) -> None:
    assert count(_after(join), aten.add.Tensor) == 1
