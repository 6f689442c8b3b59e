"""The pass that calls the kernels of gradients of convolutions' weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.ops.cuda import conv, conv_backward
from aotpack.export.passes.common.convolution_backward import lower_convolution_backward
from aotpack.export.passes.common.convolution_weight_gradient import lower_convolution_weight_gradient
from aotpack.export.passes.cuda.use_conv import use_conv
from aotpack.export.passes.cuda.use_conv_weight_gradient import use_conv_weight_gradient
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import calls, count
from tests.support.building import joint_reference

aten = torch.ops.aten
r = torch.randn


@conv_backward.cuda_conv_weight_gradient.register_kernel("cpu")
def _weight_gradient(
    rows: Tensor, source: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    weight = rows.new_empty(rows.shape[1], source.shape[1] // groups, *kernel)
    arguments = (stride, padding, dilation, False, [0] * len(kernel), groups, [False, True, False])
    gradient: Tensor = aten.convolution_backward(rows, source, weight, None, *arguments)[1]
    return gradient.clone()


class _Weighed(nn.Module):
    """A loss whose gradient by the convolution's result is not uniform."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return (y * (y + 0.5)).sum()


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Conv1d(3, 4, 3, padding=1), r(2, 3, 9)),
        (nn.Conv2d(3, 4, 3, stride=2), r(2, 3, 8, 9)),
        (nn.Conv2d(4, 4, (3, 2), padding=(1, 0), dilation=2, groups=2, bias=False), r(2, 4, 9, 8)),
        (nn.Conv2d(4, 8, 3, stride=2, groups=4), r(2, 4, 9, 8)),
        (nn.Conv3d(2, 3, 2), r(2, 2, 4, 5, 6)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), r(2, 4, 5, 6)),
    ],
    ids=["1-d", "strided", "grouped", "depthwise", "3-d", "transposed"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_gradients_are_sent_to_the_kernels(layer: nn.Module, x: Tensor, dynamic: bool) -> None:
    model, x = _Weighed(layer), x.clone().requires_grad_()
    shapes = {"x": {0: Dim("batch", min=1, max=64)}} if dynamic else None
    program = aot_export(model, (x,), mode="joint", dynamic_shapes=shapes)
    program = run_passes(program, (lower_convolution_backward, use_conv, use_conv_weight_gradient))
    assert count(program, aten.convolution_backward.default) == 0
    # Of the input's gradient, too.
    assert len(calls(program, conv.OPERATOR)) == 2
    assert len(calls(program, conv_backward.OPERATOR)) == 1
    for given in (x.detach(), *([r(5, *x.shape[1:])] if dynamic else [])):
        wanted = joint_reference(model, given.clone().requires_grad_())
        values = [wanted["outputs"], *wanted["gradients"].values(), *wanted["input_gradients"]]
        for value, right in zip(program.runnable()(given), values, strict=True):
            torch.testing.assert_close(value.double(), right, rtol=1e-4, atol=1e-4)


def test_frozen_weights_have_no_gradient() -> None:
    model = _Weighed(nn.Conv2d(3, 4, 3))
    model.layer.weight.requires_grad_(False)
    program = aot_export(model, (r(2, 3, 5, 5, requires_grad=True),), mode="joint")
    program = run_passes(program, (lower_convolution_backward, use_conv, use_conv_weight_gradient))
    assert not calls(program, conv_backward.OPERATOR)
    assert count(program, aten.convolution_backward.default) == 0


def test_a_weight_of_dynamic_channels_stays_a_product() -> None:
    def gradient(x: Tensor, w: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(nn.functional.conv2d(x, w.requires_grad_()).square().sum(), (w,))
        return result

    program = aot_export(gradient, (r(2, 3, 5, 5), r(4, 3, 2, 2)), dynamic_shapes={"x": {}, "w": {0: Dim("n", max=9)}})
    program = run_passes(program, (use_conv_weight_gradient, lower_convolution_weight_gradient))
    assert not calls(program, conv_backward.OPERATOR)
    assert count(program, aten.convolution_backward.default) == 0
