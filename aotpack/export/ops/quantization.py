"""Quantization as operators of their own until a backend has chosen kernels: passes see what is quantized, and how.

They have no kernels: what no kernel takes becomes plain operators (passes/common/lower_quantization.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def quantized(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """`x / scale + zero`, rounded to the nearest (ties to even) and saturated."""
    info = torch.iinfo(dtype)
    rounded = torch.round(x / scale)
    if zero is not None:
        rounded = rounded + zero.to(torch.float32)
    return rounded.clamp(info.min, info.max).to(dtype)


def dequantized(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """`(x - zero) * scale`."""
    numbers = x.to(torch.float32)
    return (numbers if zero is None else numbers - zero.to(torch.float32)) * scale


# Of fp32 and of uint8 or int8; scale and zero point have shapes that broadcast with `x`.
quantize = define(
    "quantize(Tensor x, Tensor scale, Tensor? zero, ScalarType dtype) -> Tensor",
    quantized,
    lambda x, scale, zero, dtype: torch.empty_like(x, dtype=dtype),
    kernel=False,
)
dequantize = define(
    "dequantize(Tensor x, Tensor scale, Tensor? zero) -> Tensor",
    dequantized,
    lambda x, scale, zero: torch.empty_like(x, dtype=torch.float32),
    kernel=False,
)
