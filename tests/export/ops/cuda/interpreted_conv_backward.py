"""Compares the kernels of convolutions' gradients with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.cuda import conv_backward
from aotpack.export.ops.cuda.gemm_rule import Tile
from tests.export.ops.cuda.interpreter import launched

# Not bfloat16: the interpreter multiplies its bits as integers.
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3}


def check(
    x: Tensor, weight: tuple[int, ...], *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    transposed: bool = False, output_padding: Any = 0, groups: int = 1, last: bool = False,
) -> None:  # fmt: skip
    spatial = x.dim() - 2
    stride, padding, dilation, output_padding = (
        [value] * spatial if isinstance(value, int) else list(value)
        for value in (stride, padding, dilation, output_padding)
    )
    call = (stride, padding, dilation, transposed, output_padding, groups)
    w = torch.randn(weight, dtype=torch.float64)
    dy = torch.randn_like(torch.convolution(x.double(), w, None, *call)).to(x.dtype)
    if last:
        x, dy = (t.movedim(1, -1).contiguous().movedim(-1, 1) for t in (x, dy))
    _, wanted, _ = torch.ops.aten.convolution_backward(dy.double(), x.double(), w, None, *call, [False, True, False])
    rows, source = (x, dy) if transposed else (dy, x)
    found = conv_backward.weight_gradient(rows, source, weight[2:], stride, padding, dilation, groups, launched)
    assert found.shape == wanted.shape and found.dtype == x.dtype
    if not wanted.numel():
        return
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    case = (x.shape, weight, x.dtype, *call)
    assert error <= BOUNDS[x.dtype], (*case, float(error))


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn
    # The sums of a tile in one block, and divided.
    for splits in (1, 3):
        conv_backward.choose = lambda *_, splits=splits, **__: (Tile(16, 16, 16, 4, 1), splits)  # type: ignore[assignment]
        for kernel, stride, padding, dilation in ((1, 1, 0, 1), (1, 2, 0, 1), (3, 1, 1, 1), (3, 2, 2, 1), (2, 1, 0, 2)):
            check(r(2, 3, 5, 6), (5, 3, kernel, kernel), stride=stride, padding=padding, dilation=dilation)
        # Tiles of one tap's channels: fewer and more than fill them, channels_last and not.
        for last, channels in ((True, 16), (False, 20), (True, 33)):
            check(r(2, channels, 4, 5), (18, channels, 2, 2), padding=(1, 0), stride=(2, 1), last=last)
            check(r(2, channels, 4, 5), (17, channels, 1, 1), last=last)
        check(r(2, 16, 37), (4, 16, 3), padding=1)
        check(r(2, 4, 3, 4, 5), (6, 4, 2, 1, 3), padding=(1, 0, 1), stride=(1, 2, 1))
        check(r(2, 16, 2, 3, 4), (3, 16, 2, 2, 2), padding=1)
        check(r(1, 8, 5, 4), (12, 2, 3, 3), groups=4)
        check(r(3, 36, 5, 4), (34, 18, 1, 1), groups=2)
        for stride, padding, dilation in ((1, 1, 1), (2, 0, 1), (3, 1, 2)):
            check(r(1, 4, 5, 4), (4, 3, 3, 3), stride=stride, padding=padding, dilation=dilation, transposed=True)
        check(r(2, 16, 5, 4), (16, 9, 2, 2), stride=2, output_padding=(1, 0), transposed=True, groups=2, last=True)
        for dtype in BOUNDS:
            check(r(2, 3, 6, 6).to(dtype), (4, 3, 3, 3))
        # More images than a step has places, and none.
        check(r(70, 18, 1, 1), (4, 18, 1, 1))
        check(r(33, 3, 2, 1), (4, 3, 2, 2), padding=1)
        check(r(0, 3, 5, 5), (4, 3, 3, 3))
        check(r(2, 6, 9, 1).transpose(1, 2)[:, ::2], (4, 5, 2, 1))
        # Fewer steps than blocks share them.
        check(r(1, 18, 2, 2), (4, 18, 1, 1))
    # A group for each channel.
    for splits, each, stride, transposed in itertools.product((1, 3), (1, 2), (1, 2), (False, True)):
        conv_backward.choose_depthwise = lambda *_, splits=splits, **__: ((4, 4, 16), splits)  # type: ignore[assignment]
        weight = (5, each, 3, 3) if transposed else (5 * each, 1, 3, 3)
        check(r(2, 5, 4, 5), weight, stride=stride, padding=1, groups=5, transposed=transposed, last=each == 2)
    check(r(2, 70, 9).half(), (70, 1, 4), groups=70, padding=3, dilation=2)
    check(r(1, 18, 3, 4, 5).double(), (18, 1, 2, 3, 1), groups=18, padding=1)


if __name__ == "__main__":
    main()
