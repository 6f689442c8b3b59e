"""The pass that folds constant scales and shifts into the weights before them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export.ir.program import Program
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.scales import fold_scales
from tests.export.pass_checks import attributes, count, operators, run

aten = torch.ops.aten

_PRODUCERS: dict[str, tuple[nn.Module, tuple[int, ...], int]] = {
    "linear": (nn.Linear(3, 6), (2, 5, 3), 0),
    "linear of a vector": (nn.Linear(3, 6), (3,), 0),
    "conv1d": (nn.Conv1d(3, 6, 2, bias=False), (2, 3, 9), 1),
    "conv2d grouped": (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 6), 2),
    "conv2d unbatched": (nn.Conv2d(4, 6, 3), (4, 5, 6), 2),
    "transposed 2d grouped": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (2, 4, 5, 6), 2),
    "conv3d": (nn.Conv3d(2, 6, 2), (2, 2, 3, 4, 5), 3),
}


class Scaled(nn.Module):
    """`function(inner(x), a, b)`; a and b are one value per channel."""

    def __init__(self, inner: nn.Module, spatial: int, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.function = inner, function
        sizes = (6, *[1] * spatial)
        self.a, self.b = nn.Parameter(torch.rand(sizes) + 0.5), nn.Parameter(torch.randn(sizes))

    def forward(self, x: Tensor) -> Any:
        return self.function(self.inner(x), self.a, self.b)


class Weights(nn.Module):
    """A function of a tensor and of parameters."""

    def __init__(self, function: Callable[..., Any], *weights: Tensor) -> None:
        super().__init__()
        self.function, self.weights = function, nn.ParameterList([nn.Parameter(w) for w in weights])

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.weights)


def folded(function: Callable[..., Any], name: str = "linear", dtype: torch.dtype = torch.float32) -> Program:
    inner, sizes, spatial = _PRODUCERS[name]
    model = Scaled(inner, spatial, function).eval().to(dtype)
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 4e-2}.get(dtype, 1e-5)
    after = run(model, (torch.randn(sizes, dtype=dtype),), fold_scales, tolerance=tolerance)
    inner.float()
    return after


class TestFoldScales:
    @pytest.mark.parametrize("name", _PRODUCERS)
    def test_a_scale_and_a_shift_per_channel(self, name: str) -> None:
        after = folded(lambda y, a, b: y * a + b, name)
        assert len(operators(after)) == 1
        infos = [after.constant_info(attribute) for attribute in attributes(after)]
        assert [info.role for info in infos] == ["folded", "folded"]
        assert {"inner.weight", "a"} <= set(infos[0].sources)
        assert {"a", "b"} <= set(infos[1].sources)

    @pytest.mark.parametrize(
        "function",
        [
            lambda y, a, b: a * y,
            lambda y, a, b: y / math.sqrt(8),
            lambda y, a, b: y / a,
            lambda y, a, b: y * 2 - 3,
            lambda y, a, b: 3 - y,
            lambda y, a, b: b - y / a,
            lambda y, a, b: -y + b,
            lambda y, a, b: torch.add(y, b, alpha=3),
            lambda y, a, b: torch.add(b, y, alpha=3),
            lambda y, a, b: torch.sub(b, y, alpha=0.5),
            lambda y, a, b: torch.sub(y, b, alpha=0.5) * a + b - a,
            lambda y, a, b: torch.rsub(y, b, alpha=2),
            lambda y, a, b: torch.rsub(y, 7, alpha=2),
            lambda y, a, b: (y + b[0]) * a,
        ],
    )
    def test_every_operator(self, function: Callable[..., Any]) -> None:
        for name in ("linear", "conv1d"):
            inner, sizes, spatial = _PRODUCERS[name]
            after = run(Scaled(inner, spatial, function).eval(), (torch.randn(sizes),), fold_constants, fold_scales)
            assert len(operators(after)) == 1

    def test_a_shift_alone_leaves_the_weight(self) -> None:
        after = folded(lambda y, a, b: y + b)
        assert attributes(after) == ["inner.weight", "_inner_weight_shift"]

    @pytest.mark.parametrize(
        ("function", "x", "weights"),
        [
            (lambda x, w, b: torch.matmul(x, w) + b, (2, 4, 3), [(3, 6), (6,)]),
            (lambda x, w, b: torch.mm(x, w) * b, (4, 3), [(3, 6), (6,)]),
            (lambda x, w, c, b: torch.addmm(c, x, w) * b, (4, 3), [(3, 6), (6,), (1, 6)]),
            (lambda x, w, c, b: torch.addmm(c, x, w, beta=3) + b, (4, 3), [(3, 6), (1, 6), (6,)]),
            (lambda x, w, c, b: F.linear(x, w.t(), c) * b, (4, 3), [(3, 6), (6,), (6,)]),
        ],
    )
    def test_matrix_products(self, function: Any, x: Any, weights: Any) -> None:
        model = Weights(function, *(torch.randn(sizes) for sizes in weights))
        after = run(model, (torch.randn(x),), fold_scales)
        assert set(operators(after)) <= {"aten.linear.default", "aten.t.default"}

    @pytest.mark.parametrize(
        "function",
        [
            lambda y, a, b: y * a.view(6, 1)[:1],
            lambda y, a, b: (y * a, y),
            lambda y, a, b: F.relu(y) * a,
            lambda y, a, b: a / y,
            lambda y, a, b: torch.div(y, a, rounding_mode="floor"),
            lambda y, a, b: y * (y.sum() > 0),
            lambda y, a, b: y * y,
            lambda y, a, b: y / 0,
            lambda y, a, b: y * math.inf,
            lambda y, a, b: y * a.double(),
        ],
        ids=["not yet folded", "read twice", "relu", "divisor", "floor", "bool", "square", "zero", "inf", "dtype"],
    )
    def test_others_stay(self, function: Callable[..., Any]) -> None:
        inner, sizes, spatial = _PRODUCERS["linear"]
        model = Scaled(copy.deepcopy(inner), spatial, function).eval()
        with torch.no_grad():
            for parameter in model.inner.parameters():
                parameter.abs_().add_(0.1)  # results far from zero, around which a quotient is but rounding
        after = fold_scales(before := run(model, (torch.rand(sizes),)))
        assert after is before

    def test_values_along_other_dims_stay(self) -> None:
        model = Weights(lambda x, w, s: F.linear(x, w) * s, torch.randn(6, 3), torch.randn(6, 1))
        assert count(run(model, (torch.randn(2, 6, 3),), fold_scales), aten.mul.Tensor) == 1
        model = Weights(lambda x, w, s: F.linear(x, w) * s, torch.randn(6, 3), torch.randn(1, 1, 6))
        assert count(run(model, (torch.randn(2, 3),), fold_scales), aten.mul.Tensor) == 1
        model = Weights(lambda x, w, s: F.linear(x, w) * s, torch.randn(1, 3), torch.randn(6))
        assert count(run(model, (torch.randn(2, 3),), fold_scales), aten.mul.Tensor) == 1

    def test_a_constant_that_widens_the_result_stays(self) -> None:
        model = nn.Conv2d(3, 6, 3).bfloat16()
        for factor, left in ((torch.full((1,), 2.0), 1), (torch.tensor(2.0), 0), (torch.full((1,), 2), 0)):
            after = run(
                Weights(lambda x, w, f=factor: F.conv2d(x, w) * f, model.weight.detach()),
                (torch.randn(1, 3, 5, 5).bfloat16(),),
                fold_constants,
                fold_scales,
                tolerance=2e-2,
            )
            assert count(after, aten.mul.Tensor) == left

    def test_a_table_that_is_looked_up_too_keeps_its_one_copy(self) -> None:
        table = torch.randn(50, 6)
        model = Weights(lambda i, w: F.linear(F.embedding(i, w), w) * 0.1 + 1, table)
        after = run(model, (torch.tensor([1, 2]),), fold_scales)
        assert count(after, aten.mul.Tensor) == 1
        model = Weights(lambda i, w: F.embedding(i, w) @ w.t() + 1, table)
        after = run(model, (torch.tensor([1, 2]),), fold_scales)
        assert count(after, aten.add.Tensor) == 0
        assert attributes(after)[0] == "weights.0"

    @pytest.mark.parametrize(
        ("function", "left"),
        [
            (lambda y, a, b: y / 8 + b, 0),
            (lambda y, a, b: y * 2, 1),
            (lambda y, a, b: y * 1e-4, 1),
            (lambda y, a, b: y * a, 1),
        ],
    )
    def test_what_fp16_could_not_hold_stays(self, function: Callable[..., Any], left: int) -> None:
        after = folded(function, dtype=torch.float16)
        assert len(operators(after)) == 1 + left

    def test_bfloat16(self) -> None:
        after = folded(lambda y, a, b: y * a + b, "conv2d grouped", torch.bfloat16)
        assert len(operators(after)) == 1
        assert {node.meta["val"].dtype for node in after.graph.find_nodes(op="get_attr")} == {torch.bfloat16}

    def test_rounded_once(self) -> None:
        # In bf16, 256 + 1 is 256: step by step nothing would be added.
        eye, bias = torch.eye(2).bfloat16(), torch.full((2,), 256).bfloat16()
        x = torch.zeros(1, 2).bfloat16()
        after = run(Weights(lambda x, w, b: F.linear(x, w, b) + 1 + 1, eye, bias), (x,), fold_scales, tolerance=1e-2)
        assert after.runnable()(x)[0].tolist() == [[258.0, 258.0]]

    def test_dynamic_sizes(self) -> None:
        shapes = {"x": {0: Dim("n")}}
        model = Scaled(nn.Linear(3, 6), 0, lambda y, a, b: y * a + b)
        x, other = torch.randn(2, 3), torch.randn(5, 3)
        after = run(model, (x,), fold_scales, dynamic_shapes=shapes, other_args=(other,))
        assert operators(after) == ["aten.linear.default"]
