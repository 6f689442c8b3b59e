"""The pass that finds SiLU and hardswish behind their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.passes.common.gates import recompose_gates
from tests.export.pass_checks import operators, run

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x * torch.sigmoid(x), "silu"),
        (lambda x: torch.sigmoid(x) * x, "silu"),
        (lambda x: x * F.hardsigmoid(x), "hardswish"),
        (lambda x: x * F.relu6(x + 3) / 6, "hardswish"),
        (lambda x: F.hardtanh(3 + x, 0, 6) * x * (1 / 6), "hardswish"),
        (lambda x: x * ((x + 3.0).clamp(0.0, 6.0) / 6.0), "hardswish"),
        (lambda x: (1 / 6) * F.relu6(x + 3) * x, "hardswish"),
    ],
)
def test_formulas(function: Callable[[Tensor], Tensor], operator: str) -> None:
    after = run(lambda x: function(x.sin() * 9), (5 * torch.randn(64),), recompose_gates)
    assert operators(after) == ["aten.sin.default", "aten.mul.Tensor", f"aten.{operator}.default"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * torch.sigmoid(y),
        lambda x, y: x * (g := torch.sigmoid(x)) + g * y,
        lambda x, y: x * F.relu6(x + 3) / 5,
        lambda x, y: x * F.relu6(x + 2) / 6,
        lambda x, y: x * F.relu6(y + 3) / 6,
        lambda x, y: x * F.relu(x + 3) / 6,
        lambda x, y: x * F.relu6(torch.add(x, 3, alpha=2)) / 6,
        lambda x, y: 6 / (x * F.relu6(x + 3) + 1),
        lambda x, y: ((p := x * F.relu6(x + 3)) / 6, p),
        lambda x, y: (x * (g := F.relu6(x + 3)) / 6, g),
        lambda x, y: x * torch.sigmoid(x.double()),
        lambda x, y: x * torch.tanh(x),
    ],
)
def test_others_stay(function: Callable[[Tensor, Tensor], Any]) -> None:
    assert not run(function, (torch.randn(8), torch.randn(8)), recompose_gates).reports


def test_shapes_that_are_broadcast() -> None:
    # The gate of a squeezed image scales another.
    after = run(lambda x: x * torch.sigmoid(x.mean(-1, keepdim=True)), (torch.randn(4, 8),), recompose_gates)
    assert not after.reports
