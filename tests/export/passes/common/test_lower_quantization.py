"""The pass that makes arithmetic of quantization that no kernel takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import aot_export, ops
from aotpack.export.passes.common.lower_quantization import lower_quantization
from tests.export.pass_checks import count


class Rounded(nn.Module):
    """Numbers that were integers in between."""

    def __init__(self, dtype: torch.dtype, zero: Tensor | None, scale: Tensor) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("zero", zero)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        whole = ops.quantize(x, self.scale, self.zero, self.dtype)
        return whole, ops.dequantize(whole, self.scale, self.zero)


# Ties, and numbers beyond the range on both sides.
X = torch.tensor([[-1e4, -3.25, -0.75, -0.25, 0.0, 0.25], [0.75, 1.25, 1.75, 63.0, 127.25, 1e4]])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("scale", [torch.tensor(0.5), torch.tensor([[0.5], [0.25]])], ids=["tensor", "axis"])
def test_results_are_those_of_the_definition(dtype: torch.dtype, zero: int | None, scale: Tensor) -> None:
    model = Rounded(dtype, None if zero is None else torch.tensor(zero, dtype=dtype), scale)
    program = aot_export(model, (X,))
    assert count(program, ops.quantize, ops.dequantize) == 2
    lowered = lower_quantization(program)
    assert count(lowered, ops.quantize, ops.dequantize) == 0
    whole, numbers = lowered.runnable()(X)
    info, shift = torch.iinfo(dtype), zero or 0
    expected = (torch.round(X.double() / scale.double()) + shift).clamp(info.min, info.max)
    assert whole.dtype == dtype
    assert torch.equal(whole.double(), expected)
    assert torch.equal(numbers.double(), (expected - shift) * scale.double())
