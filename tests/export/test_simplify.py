"""Passes that bring a graph into one form: canonical arguments, no dropout, no calls without effect."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.passes.common.canonicalize import canonicalize
from aotpack.export.passes.common.dropout import remove_dropout
from aotpack.export.passes.common.noops import remove_noops
from aotpack.export.passes.cpu.views_to_reshapes import views_to_reshapes
from tests.export.pass_checks import calls, count, operators, run

aten = torch.ops.aten


class TestCanonicalize:
    def test_arguments_follow_the_schema(self) -> None:
        def function(x: Tensor) -> Tensor:
            y = aten.add.Tensor(self=x, other=1, alpha=1)
            y = aten.flatten.using_ints(y, start_dim=0, end_dim=-1)
            y = aten.sum.dim_IntList(y, dim=[0], keepdim=True, dtype=torch.float64)
            return aten.sub.Tensor(y, other=y, alpha=2)

        after = run(function, (torch.randn(2, 3),), canonicalize)
        add, flatten, total, sub = (n for n in after.graph.nodes if n.op == "call_function")
        x = after.graph.find_nodes(op="placeholder")[0]
        assert (add.args, add.kwargs) == ((x, 1), {})
        assert (flatten.args, flatten.kwargs) == ((add,), {})
        assert (total.args, total.kwargs) == ((flatten, [0], True), {"dtype": torch.float64})
        assert (sub.args, sub.kwargs) == ((total, total), {"alpha": 2})

    def test_a_default_in_front_of_another_argument_is_filled_in(self) -> None:
        after = run(lambda x: aten.flatten.using_ints(x, end_dim=1), (torch.randn(2, 3, 4),), canonicalize)
        (flatten,) = calls(after, aten.flatten.using_ints)
        assert flatten.args[1:] == (0, 1)

    def test_a_number_of_another_type_is_no_default(self) -> None:
        after = run(lambda x: aten.add.Tensor(x, 1, alpha=1.0), (torch.randn(3),), canonicalize)
        assert calls(after, aten.add.Tensor)[0].kwargs in ({"alpha": 1.0}, {})

    def test_metadata_stays(self) -> None:
        before = aot_export(nn.Sequential(nn.Flatten(0, 1), nn.Conv2d(3, 4, 3)), (torch.randn(1, 2, 3, 5, 5),))
        after = canonicalize(before)
        assert [(n.name, n.meta.get("nn_module_stack")) for n in after.graph.nodes] == [
            (n.name, n.meta.get("nn_module_stack")) for n in before.graph.nodes
        ]

    def test_dead_code_goes_and_assertions_stay(self) -> None:
        def function(x: Tensor, n: Tensor) -> Tensor:
            x.sin().cos()
            count = n.item()
            torch._check(count >= 0)
            torch._check(count < 7)
            return x + count

        args = (torch.randn(3), torch.tensor(3))
        after = run(function, args, canonicalize)
        assert count(after, aten.sin.default, aten.cos.default) == 0
        asserted = count(aot_export(function, args), aten._assert_scalar.default)
        assert count(after, aten._assert_scalar.default) == asserted > 0
        assert after.reports[0].name == "canonicalize"

    def test_random_numbers_keep_their_places(self) -> None:
        after = run(lambda x: aten.rand_like(x, pin_memory=False) + x, (torch.randn(3),), canonicalize)
        assert count(after, aten.rand_like.default) == 1


class TestDropout:
    @pytest.mark.parametrize(
        "model", [nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()], ids=lambda m: str(m)
    )
    def test_goes_at_inference_and_stays_in_training(self, model: nn.Module) -> None:
        x = torch.randn(2, 3, 4, 5)
        chain = nn.Sequential(nn.ReLU(), model, nn.ReLU())
        assert operators(run(chain.eval(), (x,), remove_dropout)) == ["aten.relu.default"] * 2
        assert len(operators(run(chain.train(), (x,), remove_dropout))) == 3

    def test_probability_zero_goes_in_training(self) -> None:
        after = run(lambda x: F.dropout(x.sin(), p=0.0, training=True), (torch.randn(3),), remove_dropout)
        assert operators(after) == ["aten.sin.default"]

    def test_the_form_with_a_mask(self) -> None:
        def function(x: Tensor) -> tuple[Tensor, Tensor]:
            y, mask = torch.native_dropout(x.sin(), 0.5, False)
            return y.cos(), mask

        after = run(function, (torch.randn(3),), remove_dropout)
        assert operators(after) == ["aten.sin.default", "aten.ones_like.default", "aten.cos.default"]
        training = run(lambda x: torch.native_dropout(x, 0.5, True)[0], (torch.randn(3),), remove_dropout)
        assert count(training, aten.native_dropout.default) == 1


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
