"""The pass that finds GELU behind its formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aotpack.export.passes.common.gelu import recompose_gelu
from tests.export.pass_checks import calls, operators, run

aten = torch.ops.aten


class TestGelu:
    @pytest.mark.parametrize(
        ("function", "approximate"),
        [
            (lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), "tanh"),
            (lambda x: 0.5 * x * (1.0 + torch.tanh((x + 0.044715 * torch.pow(x, 3.0)) * 0.7978845608028654)), "tanh"),
            (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "none"),
            (lambda x: x * (1.0 + torch.erf(x * math.sqrt(0.5))) * 0.5, "none"),
            (lambda x: x * (0.5 * (1.0 + torch.erf(x / 1.4142135623730951))), "none"),
        ],
    )
    def test_formulas(self, function: Callable[[Tensor], Tensor], approximate: str) -> None:
        after = run(lambda x: function(x.sin()), (5 * torch.randn(64),), recompose_gelu)
        assert operators(after) == ["aten.sin.default", "aten.gelu.default"]
        assert calls(after, aten.gelu.default)[0].kwargs == {"approximate": approximate}

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, y: 0.5 * x * (1 + torch.erf(y / math.sqrt(2))),
            lambda x, y: 0.4 * x * (1 + torch.erf(x / math.sqrt(2))),
            lambda x, y: 0.5 * x * (1 + torch.erf(x)),
            lambda x, y: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044 * x**3))),
            lambda x, y: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**2))),
            lambda x, y: 0.5 * x * torch.add(1, torch.erf(x / math.sqrt(2)), alpha=2),
            lambda x, y: 0.5 * x * y,
        ],
    )
    def test_others_stay(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        assert not run(function, (torch.randn(8), torch.randn(8)), recompose_gelu).reports
