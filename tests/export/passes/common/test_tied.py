"""The pass that merges weights that share memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aotpack.export.passes.common.tied import merge_tied
from tests.export.pass_checks import attributes, run

aten = torch.ops.aten


class TestTied:
    def test_the_same_memory_becomes_one_constant(self) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(4, 4, bias=False)
                self.second = nn.Linear(4, 4, bias=False)
                self.third = nn.Linear(4, 4, bias=False)
                self.second.weight = nn.Parameter(self.first.weight.detach())

            def forward(self, x: Tensor) -> Tensor:
                return self.third(self.second(self.first(x)))

        after = run(Tied(), (torch.randn(2, 4),), merge_tied)
        assert attributes(after) == ["first.weight", "third.weight"]
        assert set(after.constant_info("first.weight").sources) == {"first.weight", "second.weight"}

    def test_other_views_of_the_memory_stay_apart(self) -> None:
        class Views(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                memory = torch.randn(4, 4)
                for name, value in (("a", memory), ("b", memory.t()), ("c", memory[:2]), ("d", memory[2:])):
                    self.register_buffer(name, value)

            def forward(self, x: Tensor) -> Tensor:
                return x @ self.a @ self.b + (self.c * self.d).sum()

        assert attributes(run(Views(), (torch.randn(2, 4),), merge_tied)) == ["a", "b", "c", "d"]
