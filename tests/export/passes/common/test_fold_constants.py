"""The pass that folds what is computed from constants alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.noops import remove_noops
from tests.export.pass_checks import attributes, count, operators, run

aten = torch.ops.aten


class WithConstant(nn.Module):
    """A function of a tensor and a parameter `weight`."""

    def __init__(self, function: Any, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.weight)


class TestConstants:
    def test_casts_and_transpositions_become_weights(self) -> None:
        model = WithConstant(lambda x, w: x @ (w.to(torch.int16).to(x.dtype).t() * 2), 9 * torch.randn(3, 4))
        after = run(model, (torch.randn(2, 4),), remove_noops, fold_constants)
        assert operators(after) == ["aten.matmul.default"]
        (name,) = attributes(after)
        assert after.constant_info(name).role == "folded"
        assert after.constant_info(name).sources == ("weight",)

    def test_results_and_tuples_of_constants_fold(self) -> None:
        model = WithConstant(lambda x, w: (x + w.split(2)[1], w.sort()[0]), torch.randn(4))
        after = run(model, (torch.randn(2),), fold_constants)
        assert operators(after) == ["aten.add.Tensor"]

    def test_values_made_of_nothing_stay(self) -> None:
        after = run(lambda x: x + torch.arange(4) * torch.ones(4), (torch.randn(4),), fold_constants)
        assert count(after, aten.arange.default, aten.ones.default) == 2

    def test_random_values_stay(self) -> None:
        model = WithConstant(lambda x, w: x + torch.rand_like(w) + torch.bernoulli(w), torch.rand(4))
        after = run(model, (torch.randn(4),), fold_constants)
        assert count(after, aten.rand_like.default, aten.bernoulli.default) == 2

    def test_dynamic_sizes_stay(self) -> None:
        model = WithConstant(lambda x, w: x + w.expand(x.shape[0], 4), torch.rand(1, 4))
        x, other = torch.randn(3, 4), torch.randn(5, 4)
        after = run(model, (x,), fold_constants, dynamic_shapes={"x": {0: Dim("n")}}, other_args=(other,))
        assert count(after, aten.expand.default) == 1

    @pytest.mark.parametrize(("rows", "folded"), [(1_000, True), (40_000, False)])
    def test_growth_is_bounded(self, rows: int, folded: bool) -> None:
        model = WithConstant(lambda x, w: x + (w.expand(rows, 8) + 1), torch.randn(1, 8))
        after = run(model, (torch.randn(rows, 8),), fold_constants)
        assert count(after, aten.expand.default) == (0 if folded else 1)

    def test_large_steps_to_small_values_fold(self) -> None:
        model = WithConstant(lambda x, w: x + w.expand(40_000, 8).sum(0), torch.randn(1, 8))
        assert count(run(model, (torch.randn(8),), fold_constants), aten.expand.default) == 0

    def test_state_stays(self) -> None:
        class Counter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("state", torch.zeros(3))

            def forward(self, x: Tensor) -> Tensor:
                y = x + self.state * 2
                self.state.add_(1)
                return y

        after = run(Counter(), (torch.randn(3),), fold_constants)
        assert count(after, aten.mul.Tensor) == 1
        assert [after.graph_module(torch.zeros(3))[0][0].item() for _ in range(3)] == [0, 2, 4]
