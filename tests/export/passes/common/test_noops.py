"""The pass that removes calls without effect."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aotpack.export.passes.common.noops import remove_noops
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from tests.export.pass_checks import count, operators, run

aten = torch.ops.aten


class TestNoops:
    def test_calls_that_compute_nothing_go(self) -> None:
        def function(x: Tensor) -> Tensor:
            y = (x.float().detach() + 1).to("cpu").type_as(x)
            return y.clone() * 2

        after = run(function, (torch.randn(3),), remove_noops)
        assert operators(after) == ["aten.add.Tensor", "aten.mul.Tensor"]

    def test_conversions_and_copies_stay(self) -> None:
        def function(x: Tensor) -> Tensor:
            y = x.to(torch.float64).to(torch.float32)
            return y.transpose(0, 1).clone(memory_format=torch.contiguous_format)

        after = run(function, (torch.randn(3, 4),), remove_noops)
        assert count(after, aten.to.dtype) == 2
        assert count(after, aten.clone.default) == 1

    def test_a_copy_of_an_input_stays(self) -> None:
        assert count(run(lambda x: x.clone(), (torch.randn(3),), remove_noops), aten.clone.default) == 1

    def test_a_copy_of_a_view_of_state_stays_where_state_is_written(self) -> None:
        class Memory(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("state", torch.zeros(2, 3))

            def forward(self, x: Tensor) -> Tensor:
                before = self.state[0].clone()
                self.state.copy_(x)
                return before

        after = run(Memory(), (torch.randn(2, 3),), remove_noops)
        assert count(after, aten.clone.default) == 1
        assert after.graph_module(torch.ones(2, 3))[0].tolist() == [0, 0, 0]
        assert after.graph_module(torch.zeros(2, 3))[0].tolist() == [1, 1, 1]

    def test_a_copy_that_is_denser_than_its_source_stays(self) -> None:
        after = run(
            lambda x: (x + 1)[:, None].expand(3, 4).clone().as_strided((2, 2), (4, 1)),
            (torch.randn(3),),
            remove_noops,
            views_to_reshapes,
        )
        assert aten.clone.default in [node.target for node in after.graph.nodes]
