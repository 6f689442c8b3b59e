"""The greatest elements of windows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.layout import channels_last_strides
from aotpack.export.ops.registry import define, unaliased


def _max_pool(
    x: Tensor,
    scale: Tensor | None,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> Tensor:
    wide = x if x.is_floating_point() else x.float()
    sign = torch.ones(()) if scale is None else torch.where(scale < 0, -1.0, 1.0).reshape(())
    y = (sign * F.max_pool2d(sign * wide, kernel, stride, padding, dilation, ceil_mode)).to(x.dtype)
    return unaliased(y.contiguous(memory_format=torch.channels_last), x)


def _max_pool_fake(
    x: Tensor,
    scale: Tensor | None,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> Tensor:
    wide = x.new_empty(x.shape, dtype=torch.float32)
    sizes = torch.ops.aten.max_pool2d_with_indices(wide, kernel, stride, padding, dilation, ceil_mode)[0].shape
    return x.new_empty_strided(sizes, channels_last_strides(sizes))


max_pool = define(
    "max_pool(Tensor x, Tensor? scale, int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode) "
    "-> Tensor",
    _max_pool,
    _max_pool_fake,
)
"""Of [n, c, h, w], as torch.nn.functional.max_pool2d has it, of floats or bytes; the four lists have two numbers each.
The result is channels-last. Bytes stand for themselves times `scale` (fp32, one number), but for a zero point: where it
is negative, the least of them is the greatest value.
"""
