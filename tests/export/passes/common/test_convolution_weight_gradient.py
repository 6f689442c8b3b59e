"""The pass that rewrites gradients of convolutions' weights; test_convolution_backward.py compares their values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.passes.common.convolution_backward import lower_convolution_backward
from aotpack.export.passes.common.convolution_weight_gradient import lower_convolution_weight_gradient
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import calls, count

aten = torch.ops.aten


class _Squares(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y.square().sum()


@pytest.mark.parametrize(
    ("layer", "products", "grouped"),
    [(nn.Conv2d(4, 6, 3), 1, 0), (nn.Conv2d(4, 6, 3, groups=2), 0, 1), (nn.Conv2d(4, 4, 3, groups=4), 0, 0)],
    ids=["plain", "grouped", "depthwise"],
)
def test_gradients_of_weights_are_products_of_patches(layer: nn.Module, products: int, grouped: int) -> None:
    x = torch.randn(2, 4, 6, 7, requires_grad=True)
    program = run_passes(aot_export(_Squares(layer), (x,), mode="joint"), (lower_convolution_backward,))
    (left,) = calls(program, aten.convolution_backward.default)
    assert left.args[10] == [False, True, False]
    program = run_passes(program, (lower_convolution_weight_gradient,))
    assert count(program, aten.convolution_backward.default) == 0
    assert count(program, aten.mm.default) == products
    assert count(program, aten.bmm.default) == grouped
    assert program.reports[-1].changes[0].layer == "layer"


def test_programs_without_a_backward_are_left_alone() -> None:
    program = aot_export(nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 5, 5),))
    assert lower_convolution_weight_gradient(program) is program
