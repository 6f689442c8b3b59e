"""The pass that calls the kernels of linear layers with int8 weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.cuda import int8_weight
from aotpack.export.passes.cuda.use_int8_weight import use_int8_weight
from tests.export.pass_checks import calls, operators, run

_Model = Callable[..., Tensor]


def _args(scale: Tensor) -> tuple[Tensor, ...]:
    return torch.randn(3, 6), torch.randint(-128, 128, (4, 6), dtype=torch.int8), scale, torch.randn(4)


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        (lambda x, w, s, b: F.linear(x, w.to(x.dtype) * s, b), torch.rand(4, 1)),
        (lambda x, w, s, b: F.linear(x, s * w.to(x.dtype), b), torch.rand(())),
        (lambda x, w, s, b: F.linear(x, (w.double() * s.double()).to(x.dtype), b), torch.rand(1, 1)),
        (lambda x, w, s, b: torch.addmm(b, x, (w.to(x.dtype) * s).t()), torch.rand(4, 1)),
        (lambda x, w, s, b: torch.mm(x, w.t().to(x.dtype) * s) + b, torch.rand(4)),
        (lambda x, w, s, b: x @ (w.to(x.dtype).transpose(-1, 0) * s) + b, torch.rand(1, 4)),
        (lambda x, w, s, b: b + F.linear(x, w.to(x.dtype)) * s, torch.rand(4)),
        (lambda x, w, s, b: torch.mm(x, w.permute(1, 0).to(x.dtype)) * (s + 1) + b * 2, torch.rand(4)),
    ],
    ids=["rows", "one", "wider", "addmm", "columns", "matmul", "behind", "computed"],
)
def test_products_of_dequantized_weights(model: _Model, scale: Tensor) -> None:
    (call,) = calls(run(model, _args(scale), use_int8_weight), int8_weight.OPERATOR)
    assert call.args[2] is not None
    assert call.args[3] is not None


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        # A factor per element of the sums.
        (lambda x, w, s, b: F.linear(x, w.to(x.dtype) * s, b), torch.rand(6)),
        (lambda x, w, s, b: F.linear(x, (w + w).short().to(x.dtype) * s, b), torch.rand(4, 1)),
        (lambda x, w, s, b: F.linear(x, w.to(x.dtype) * s - 1, b), torch.rand(4, 1)),
        (lambda x, w, s, b: F.linear(x, (w.to(x.dtype) * s).repeat(2, 1).split(4)[0], b), torch.rand(4, 1)),
    ],
    ids=["of-sums", "short", "shifted", "part"],
)
def test_other_products_stay(model: _Model, scale: Tensor) -> None:
    assert not calls(run(model, _args(scale), use_int8_weight), int8_weight.OPERATOR)


def test_factors_per_row_of_the_result_stay_outside() -> None:
    def model(x: Tensor, w: Tensor, s: Tensor, b: Tensor) -> Tensor:
        return F.linear(x, w.to(x.dtype)) * s

    after = run(model, (torch.randn(4, 6), *_args(torch.rand(4, 1))[1:]), use_int8_weight)
    assert "aten.mul.Tensor" in operators(after)


def test_a_product_that_others_read_is_not_scaled() -> None:
    def model(x: Tensor, w: Tensor, s: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = F.linear(x, w.to(x.dtype))
        return y * s, y + b

    after = run(model, _args(torch.rand(4)), use_int8_weight)
    assert {"aten.mul.Tensor", "aten.add.Tensor"} <= set(operators(after))
