"""The pass that makes one product of several that share their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.driver.pipeline import PASSES
from aotpack.export.ir.program import Program
from aotpack.export.passes.common.fuse_linears import fuse_linears
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from tests.export.pass_checks import attributes, calls, count, operators, run

aten = torch.ops.aten


class Three(nn.Module):
    """`function(x, q, k, v)` over three linears of 8 inputs and 8, 8 and 4 outputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.q, self.k, self.v)


def fused(function: Callable[..., Any], *passes: Any, sizes: tuple[int, ...] = (2, 5, 8)) -> Program:
    return run(Three(function).eval(), (torch.randn(sizes),), *(passes or (fuse_linears,)))


def products(program: Program) -> int:
    return count(program, aten.linear.default, aten.addmm.default, aten.mm.default, aten.matmul.default)


class Attention(nn.Module):
    """Separate projections, heads of 4, as BERT and Llama spell them."""

    def __init__(self, key_heads: int = 2) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 4 * key_heads, bias=False), nn.Linear(8, 4 * key_heads)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (p(x).view(b, s, -1, 4).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(b, s, 8)) + x


class TestFuseLinears:
    @pytest.mark.parametrize("key_heads", [2, 1])
    def test_attention(self, key_heads: int) -> None:
        shapes = {"x": {0: Dim("n"), 1: Dim("length")}}
        args, other = (torch.randn(2, 5, 8),), (torch.randn(3, 7, 8),)
        model = Attention(key_heads).eval()
        after = run(model, args, fuse_linears, dynamic_shapes=shapes, other_args=other)
        assert products(after) == 2
        assert {"_q_weight_and_2", "_q_weight_and_2_bias"} < set(attributes(after))
        assert set(after.constant_info("_q_weight_and_2").sources) == {"q.weight", "k.weight", "v.weight"}
        # The heads are views of the one result, whose strides they state.
        whole = 8 + 8 * key_heads
        for view in calls(after, aten.transpose.int)[:3]:
            assert view.meta["val"].stride()[1:] == (4, whole, 1)
        after = run(model, args, *PASSES, dynamic_shapes=shapes, other_args=other)
        assert count(after, ops.packed_linear) == 2

    def test_fused_products_that_read_a_fused_product(self) -> None:
        """As the bottlenecks of MobileBERT do."""

        class Bottleneck(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
                self.second = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))

            def forward(self, x: Tensor) -> Tensor:
                shared, skipped = (linear(x) for linear in self.first)
                query, key = (linear(shared) for linear in self.second)
                return torch.cat([query.softmax(-1) * key, skipped], -1)

        after = run(Bottleneck().eval(), (torch.randn(2, 5, 8),), fuse_linears)
        assert products(after) == 2

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, q, k, v: q(x) * k(x) + 1,
            lambda x, q, k, v: F.silu(q(x)) * k(x),
            lambda x, q, k, v: torch.cat([q(x), v(x)], 2),
            lambda x, q, k, v: q(x).softmax(-1) + k(x).sum(1, keepdim=True),
            lambda x, q, k, v: q(x)[:, 1:, :2] * v(x)[:, :-1, 2:],
            lambda x, q, k, v: q(x.view(10, 8)).exp() * k(x.view(10, 8)),
            lambda x, q, k, v: q(x).view(2, 5, 2, 4).transpose(1, 2).contiguous().view(-1) * k(x).square().sum(),
            lambda x, q, k, v: q(x).split(4, -1)[1] * v(x),
        ],
        ids=["pointwise", "gated", "cat", "reductions", "slices", "equal views", "contiguous", "split"],
    )
    def test_readers_of_slices(self, function: Callable[..., Any]) -> None:
        before = products(fused(function, views_to_reshapes))
        assert products(fused(function)) < before

    def test_the_same_activation_goes_along(self) -> None:
        after = fused(lambda x, q, k, v: (q(x).relu() @ q.weight, v(x).relu() @ v.weight))
        assert products(after) == 4  # weights that something else reads
        after = fused(lambda x, q, k, v: torch.cat([F.gelu(q(x)), F.gelu(v(x))], 2))
        assert operators(after)[:2] == ["aten.linear.default", "aten.gelu.default"]
        assert count(after, aten.gelu.default) == 1
        after = fused(lambda x, q, k, v: torch.cat([F.gelu(q(x)), F.gelu(v(x), approximate="tanh")], 2))
        assert products(after) == 2

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, q, k, v: (q(x), k(x), v(x)),
            lambda x, q, k, v: (q(x) * 2, k(x)),
            lambda x, q, k, v: (q(x) + x).sin() + (k(x) + x),
            lambda x, q, k, v: q(x).view(2, -1).sin() * k(x).view(2, -1),
            lambda x, q, k, v: q(x).reshape(2, -1).sin() * k(x).reshape(2, -1),
            lambda x, q, k, v: q(x) * k(x + 1),
            lambda x, q, k, v: q(x).sin() * q(x),
            lambda x, q, k, v: torch.cumsum(q(x), 1) * torch.cumsum(k(x), 1),
            lambda x, q, k, v: q(x) * k(x) @ k.weight,
        ],
        ids=[
            "results",
            "one result",
            "residuals",
            "views over rows",
            "reshapes over rows",
            "other inputs",
            "one weight",
            "unknown readers",
            "weight read twice",
        ],
    )
    def test_others_stay(self, function: Callable[..., Any]) -> None:
        before = products(fused(function, views_to_reshapes))
        assert products(fused(function)) == before

    @pytest.mark.parametrize("shape", [(3,), (1, 3)])
    def test_unequal_biases(self, shape: tuple[int, ...]) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for i in range(3):
                    self.register_buffer(f"w{i}", torch.randn(3, 3))
                self.register_buffer("b0", torch.randn(3))
                self.register_buffer("b1", torch.randn(shape))

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
                first, second = F.linear(x, self.w0, self.b0), F.linear(x, self.w1, self.b1)
                return first * second, torch.addmm(self.b1, x, self.w2).sin()

        after = run(Model(), (torch.randn(2, 3),), fuse_linears)
        assert products(after) == 1
        (call,) = calls(after, aten.linear.default)
        assert tuple(call.args[1].meta["val"].shape) == (9, 3)
        assert tuple(call.args[2].meta["val"].shape) == (9,)

    def test_the_seed_row_where_all_results_are_returned(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for i, shape in enumerate([(3,), (1, 3), (3,)]):
                    self.register_buffer(f"w{i}", torch.randn(3, 3))
                    self.register_buffer(f"b{i}", torch.randn(shape))

            def forward(self, x: Tensor) -> tuple[Tensor, ...]:
                pairs = ((self.w0, self.b0), (self.w1, self.b1), (self.w2, self.b2))
                return tuple(F.linear(x, w, b) for w, b in pairs)

        after = run(Model(), (torch.randn(2, 3),), *PASSES)
        assert operators(after) == ["aotpack.packed_linear.default"] * 3

    def test_other_dtypes_stay_apart(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4).double()

            def forward(self, x: Tensor) -> Tensor:
                return self.a(x) * self.b(x.double())

        assert products(run(Model(), (torch.randn(2, 4),), fuse_linears)) == 2

    def test_rows_whose_number_comes_out_of_data(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, x: Tensor) -> Tensor:
                rows = x[x[:, 0] > 0]
                q, k = (p(rows).view(rows.shape[0], 2, 4).transpose(0, 1) for p in (self.q, self.k))
                return (q * k).sum((1, 2))

        after = run(Model(), (torch.randn(12, 8),), fuse_linears, other_args=(torch.randn(12, 8),))
        assert products(after) == 1
