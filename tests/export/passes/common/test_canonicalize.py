"""The pass that brings calls into one form: arguments by schema, no dead code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.passes.common.canonicalize import canonicalize
from tests.export.pass_checks import calls, count, run

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
