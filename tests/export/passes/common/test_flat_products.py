"""The pass that makes linears of products of flattened values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export.passes.common.flat_products import unflatten_products
from tests.export.pass_checks import count, run

aten = torch.ops.aten


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
