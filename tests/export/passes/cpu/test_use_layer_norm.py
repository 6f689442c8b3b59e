"""Layer norms: which become calls of the kernel, and that archives with them answer as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export import ops
from aotpack.export.driver.pipeline import PASSES
from tests.export.conftest import Build, check
from tests.export.pass_checks import count, run

aten = torch.ops.aten


class Net(nn.Module):
    """Norms, linears and a convolution for a function of them."""

    def __init__(self, function: Callable[..., Tensor], **settings: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(40, **settings)
        if self.norm.weight is not None:
            nn.init.normal_(self.norm.weight)
        if self.norm.bias is not None:
            nn.init.normal_(self.norm.bias)
        self.first, self.second, self.conv = nn.Linear(40, 40), nn.Linear(40, 24), nn.Conv2d(40, 40, 3, padding=1)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


X = torch.randn(2, 6, 40)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda m, x: m.second(m.norm(m.first(x))), X),
        (lambda m, x: m.second(m.norm(m.first(x) + x)), X),
        (lambda m, x: m.second(m.norm(x)), X),
        (lambda m, x: m.norm(m.first(x)), X),
        (lambda m, x: m.second(m.norm(m.conv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2), torch.randn(2, 40, 5, 4)),
        (lambda m, x: m.second(m.norm(m.first(x))[:, 1:]), X),
    ],
    ids=["between linears", "after a residual", "of an input", "result", "after a convolution", "sliced"],
)
def test_between_kernels(function: Callable[..., Tensor], x: Tensor) -> None:
    after = run(Net(function).eval(), (x,), *PASSES)
    assert (count(after, ops.layer_norm), count(after, aten.layer_norm.default)) == (1, 0)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda m, x: m.second(m.norm(x.sin())), X),
        (lambda m, x: m.second(m.norm(m.first(x)).exp()), X),
        (lambda m, x: m.norm(m.first(x)) + x, X),
        (lambda m, x: F.layer_norm(m.first(x), [6, 40]), X),
        (lambda m, x: F.layer_norm(x, [40], m.norm.weight.double(), m.norm.bias.double()), X.double()),
    ],
    ids=["before: loop", "after: loop", "residual", "two dims", "float64"],
)
def test_beside_loops_they_stay(function: Callable[..., Tensor], x: Tensor) -> None:
    assert count(run(Net(function).eval(), (x,), *PASSES), ops.layer_norm) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"elementwise_affine": False}, {"eps": 0.5}])
def test_archives(build: Build, dtype: torch.dtype, settings: dict[str, Any]) -> None:
    model = Net(lambda m, x: m.second(m.norm(m.norm(m.first(x)).transpose(0, 1))), **settings).eval().to(dtype)
    batch = torch.export.Dim("batch", min=0, max=64)
    x = X.to(dtype)
    built = build(model, (x,), dynamic_shapes=({0: batch},))
    for rows in (2, 1, 0, 7):
        check(built, model, (torch.randn(rows, 6, 40).to(dtype),), tolerance=1e-5 if dtype is torch.float32 else 3e-2)
