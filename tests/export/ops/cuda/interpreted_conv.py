"""Compares the kernels of convolutions with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda import conv
from aotpack.export.ops.cuda.gemm_rule import Tile
from tests.export.ops.cuda.interpreter import launched

# Not bfloat16: the interpreter multiplies its bits as integers.
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3}


def check(
    x: Tensor, weight: Tensor, *, bias: bool = True, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    transposed: bool = False, output_padding: Any = 0, groups: int = 1, activation: int = 0, residual: bool = False,
) -> None:  # fmt: skip
    spatial = x.dim() - 2
    stride, padding, dilation, output_padding = (
        [value] * spatial if isinstance(value, int) else list(value)
        for value in (stride, padding, dilation, output_padding)
    )
    channels_out = weight.shape[1] * groups if transposed else weight.shape[0]
    b = torch.randn(channels_out, dtype=x.dtype) if bias else None
    precise = None if b is None else b.double()
    wanted = torch.convolution(
        x.double(), weight.double(), precise, stride, padding, dilation, transposed, output_padding, groups
    )
    added = torch.randn(wanted.shape).to(x.dtype) if residual else None
    wanted = BY_NUMBER[activation](wanted if added is None else wanted + added.double())
    found = conv.convolve(
        x, weight, b, stride, padding, dilation, transposed, output_padding, groups, activation, launched, added
    )
    assert found.shape == wanted.shape
    assert found.stride(1) == 1 or found.shape[1] == 1
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    case = (x.shape, weight.shape, x.dtype, stride, padding, dilation, transposed, groups, activation)
    assert error <= BOUNDS[x.dtype], (*case, float(error))


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn
    # The sums of a tile in one block, and divided.
    for splits in (1, 3):
        conv.choose = lambda *_, splits=splits, **__: (Tile(16, 16, 16, 4, 1), splits)  # type: ignore[assignment]
        for kernel, stride, padding, dilation in ((1, 1, 0, 1), (1, 2, 0, 1), (3, 1, 1, 1), (3, 2, 2, 1), (2, 1, 0, 2)):
            check(r(1, 3, 5, 6), r(5, 3, kernel, kernel), stride=stride, padding=padding, dilation=dilation)
        # Channels that fill the blocks of a tap.
        check(r(1, 32, 4, 5), r(18, 32, 3, 3), padding=1)
        check(r(1, 32, 5, 6).contiguous(memory_format=torch.channels_last), r(18, 32, 2, 3), stride=(2, 1))
        check(r(2, 16, 5), r(4, 16, 3).mT.contiguous().mT, padding=1)
        check(r(1, 4, 3, 4, 5), r(6, 4, 2, 1, 3), padding=(1, 0, 1))
        check(r(1, 8, 5, 4), r(12, 2, 3, 3), groups=4, bias=False)
        for stride, padding, dilation in ((1, 1, 1), (2, 0, 1), (3, 1, 2)):
            check(r(1, 4, 5, 4), r(4, 3, 3, 3), stride=stride, padding=padding, dilation=dilation, transposed=True)
        check(r(1, 16, 5, 4), r(16, 3, 2, 2), stride=2, output_padding=(1, 0), transposed=True, groups=2)
        # Phases without taps, with as many as there are, and with steps and dilations that have a divisor in common.
        check(r(2, 18, 3, 3), r(18, 17, 1, 1), stride=2, output_padding=1, transposed=True)
        check(r(1, 16, 3, 4), r(16, 5, 4, 3), stride=2, padding=(1, 0), transposed=True, activation=1)
        check(r(2, 3, 5), r(3, 4, 3), stride=4, dilation=6, transposed=True, output_padding=2)
        for activation in (0, 1):
            check(r(2, 3, 5, 6), r(5, 3, 3, 3), stride=2, activation=activation, residual=True)
            check(r(1, 16, 3, 4), r(16, 5, 4, 3), stride=2, padding=1, transposed=True, residual=True)
            check(r(1, 8, 5, 4), r(12, 2, 3, 3), groups=4, bias=False, activation=activation, residual=True)
        for dtype in BOUNDS:
            check(r(1, 3, 6, 6).to(dtype), r(4, 3, 3, 3).to(dtype))
    for activation in range(7):
        check(3 * r(1, 3, 4, 4), r(4, 3, 3, 3), activation=activation)
    # A group for each channel.
    for each, stride, transposed in itertools.product((1, 2), (1, 2), (False, True)):
        weight = r(5, each, 3, 3) if transposed else r(5 * each, 1, 3, 3)
        check(r(1, 5, 4, 5), weight, stride=stride, padding=1, groups=5, transposed=transposed, activation=1)
    check(r(1, 5, 4, 5), r(10, 1, 3, 3), groups=5, activation=1, residual=True)
    # Products of the channels of each place; a few places, and many.
    for size in (1, 9):
        check(r(2, 18, size, size).half(), r(20, 18, 1, 1).half(), activation=1, residual=True)
    check(r(2, 70, 9).half(), r(70, 1, 4).half(), groups=70, padding=3, dilation=2)


if __name__ == "__main__":
    main()
