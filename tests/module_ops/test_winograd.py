"""Convolutions with transformed weights, through the operator."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aotpack.export import ops
from aotpack.export.ops.weight_packing import pack_conv, transform_conv_2x2, transform_conv_4x4
from tests.module_ops.cases import arrange
from tests.module_ops.harness import Driver, OperatorError

TRANSFORMS = pytest.mark.parametrize("transform", [transform_conv_2x2, transform_conv_4x4])


@TRANSFORMS
def test_convolution(kernel_driver: Driver, transform: Callable[[Tensor], Tensor]) -> None:
    generator = random.Random(3)
    for c, oc, high, wide, padding, act in [
        (5, 40, 7, 8, 1, "none"),
        (32, 64, 14, 14, 1, "relu"),
        (17, 33, 3, 3, 0, "gelu"),
        (64, 20, 1, 9, 2, "silu"),
        (9, 35, 13, 11, 1, "hardswish"),
    ]:
        x, weight = arrange(generator, torch.randn(2, c, high, wide)), torch.randn(oc, c, 3, 3)
        bias = torch.randn(oc)
        number, function = ops.ACTIVATIONS[act]
        want = functional.conv2d(x.double(), weight.double(), bias.double(), padding=padding)
        residual = arrange(generator, torch.randn(want.shape))
        want = function(want + residual.double())
        lists = [3, 3, 1, 1, padding, padding, 1, 1, 0, 0]
        packed = transform(pack_conv(weight, 1, False))
        [got] = kernel_driver("packed_conv", [x, packed, bias, residual], [oc, 0, 1, number, *lists])
        assert float((got.double() - want).abs().max()) <= 5e-6 * float(want.abs().max())


@TRANSFORMS
@pytest.mark.parametrize(
    ("dtype", "stride", "dilation"),
    [(torch.bfloat16, 1, 1), (torch.float32, 2, 1), (torch.float32, 1, 2)],
    ids=str,
)
def test_what_cannot_be_transformed_is_refused(
    kernel_driver: Driver, transform: Callable[[Tensor], Tensor], dtype: torch.dtype, stride: int, dilation: int
) -> None:
    weight = transform(pack_conv(torch.randn(8, 4, 3, 3, dtype=dtype), 1, False))
    lists = [3, 3, stride, stride, 1, 1, dilation, dilation, 0, 0]
    with pytest.raises(OperatorError, match="the weight is transformed, which only a dense fp32 convolution"):
        kernel_driver("packed_conv", [torch.randn(1, 4, 9, 9, dtype=dtype), weight, None, None], [8, 0, 1, 0, *lists])
