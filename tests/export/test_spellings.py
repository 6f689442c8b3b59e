"""Passes that find an operator behind another spelling: padding, flattened products, formulas of GELU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export.passes.common.flat_products import unflatten_products
from aotpack.export.passes.common.gelu import recompose_gelu
from aotpack.export.passes.common.padding import fold_padding
from tests.export.pass_checks import calls, count, operators, run

aten = torch.ops.aten


class Around(nn.Module):
    """`function(x, inner)`."""

    def __init__(self, inner: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.inner)


class TestPadding:
    @pytest.mark.parametrize(
        ("conv", "sizes", "pad", "padding"),
        [
            (nn.Conv2d(3, 4, 3), (2, 3, 5, 6), (1, 1, 2, 2), [2, 1]),
            (nn.Conv2d(3, 4, 3, padding=(1, 2)), (2, 3, 5, 6), (1, 1), [1, 3]),
            (nn.Conv2d(3, 4, 1, stride=2), (3, 5, 6), (0, 0, 0, 0), [0, 0]),
            (nn.Conv1d(3, 4, 3), (2, 3, 5), (2, 2), [2]),
            (nn.Conv3d(2, 4, 2), (1, 2, 3, 4, 5), (3, 3, 2, 2, 1, 1), [1, 2, 3]),
        ],
    )
    def test_even_padding_with_zeros_is_the_convolutions(
        self, conv: nn.Module, sizes: Any, pad: Any, padding: list[int]
    ) -> None:
        after = run(Around(conv, lambda x, c: c(F.pad(x, pad))).eval(), (torch.randn(sizes),), fold_padding)
        assert len(operators(after)) == 1
        (call,) = (node for node in after.graph.nodes if node.op == "call_function")
        assert list(call.args[4]) == padding

    @pytest.mark.parametrize(
        "pad",
        [
            lambda x: F.pad(x, (0, 1, 0, 1)),
            lambda x: F.pad(x, (1, 1), value=1.0),
            lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
            lambda x: F.pad(x, (-1, -1)),
            lambda x: F.pad(x[:, :1], (0, 0, 0, 0, 1, 1)),
        ],
        ids=["uneven", "value", "mode", "cropped", "channels"],
    )
    def test_others_stay(self, pad: Callable[..., Any]) -> None:
        model = Around(nn.Conv2d(3, 4, 3), lambda x, c: c(pad(x))).eval()
        after = run(model, (torch.randn(2, 3, 5, 6),), fold_padding)
        assert not after.reports

    def test_another_reader_keeps_the_padded_value(self) -> None:
        model = Around(nn.Conv2d(3, 4, 3), lambda x, c: (c(y := F.pad(x, (1, 1, 1, 1))), y.sum()))
        after = run(model.eval(), (torch.randn(2, 3, 5, 6),), fold_padding)
        assert count(after, aten.pad.default, aten.constant_pad_nd.default) == 1
        assert calls(after, aten.conv2d.default)[0].args[0].op == "placeholder"


class TestFlatProducts:
    @pytest.mark.parametrize("bias", [True, False])
    def test_products_of_flattened_values_become_linears(self, bias: bool) -> None:
        class Conv1D(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight, self.bias = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4))

            def forward(self, x: Tensor) -> Tensor:
                rows = x.view(-1, x.size(-1))
                y = torch.addmm(self.bias, rows, self.weight) if bias else rows @ self.weight
                return y.view(*x.shape[:-1], 4) + 1

        shapes = {"x": {0: Dim("n"), 1: Dim("length")}}
        args, other = (torch.randn(2, 5, 6),), (torch.randn(3, 7, 6),)
        after = run(Conv1D(), args, unflatten_products, dynamic_shapes=shapes, other_args=other)
        assert count(after, aten.linear.default) == 1
        assert count(after, aten.view.default, aten.addmm.default, aten.matmul.default) == 0

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, w: (x.view(-1, 6) @ w).view(5, 2, 4),
            lambda x, w: (x.view(-1, 3) @ w[:3]).view(2, 5, 8),
            lambda x, w: (y := x.view(-1, 6) @ w, y.view(2, 5, 4)),
            lambda x, w: (x.transpose(0, 1).reshape(-1, 6) @ w).view(2, 5, 4),
        ],
        ids=["other dims", "other features", "read flat", "another order"],
    )
    def test_others_stay(self, function: Callable[..., Any]) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.randn(6, 4))

            def forward(self, x: Tensor) -> Any:
                return function(x, self.weight)

        assert not run(Model(), (torch.randn(2, 5, 6),), unflatten_products).reports


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
