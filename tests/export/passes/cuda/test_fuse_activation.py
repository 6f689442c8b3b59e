"""The pass that makes activations part of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export.ops.cuda import gemm
from aotpack.export.passes.cuda.fuse_activation import fuse_activation
from aotpack.export.passes.cuda.use_gemm import use_gemm
from tests.export.pass_checks import calls, run


class _Layer(nn.Module):
    def __init__(self, activation: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(8, 16), activation

    def forward(self, x: Tensor) -> Any:
        return self.activation(self.linear(x))


def _fused(activation: Callable[[Tensor], Any]) -> int:
    after = run(_Layer(activation).eval(), (3 * torch.randn(5, 8),), use_gemm, fuse_activation)
    (call,) = calls(after, gemm.OPERATOR)
    number = call.args[4]
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize(
    ("activation", "number"),
    [
        (F.relu, 1),
        (F.gelu, 2),
        (lambda x: F.gelu(x, approximate="tanh"), 3),
        (F.silu, 4),
        (torch.sigmoid, 5),
        (torch.tanh, 6),
        (lambda x: x.clamp(min=0), 1),
    ],
)
def test_is_fused(activation: Callable[[Tensor], Any], number: int) -> None:
    assert _fused(activation) == number


@pytest.mark.parametrize("activation", [F.hardswish, F.relu6, lambda x: (F.relu(x), x), lambda x: F.relu(x * 2)])
def test_others_stay(activation: Callable[[Tensor], Any]) -> None:
    assert _fused(activation) == 0
