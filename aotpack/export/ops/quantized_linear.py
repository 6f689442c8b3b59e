"""Linears whose weight has 4 or 8 bits (csrc/kernels/quantized_linear.h)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.registry import define
from aotpack.export.ops.weight_packing import PANEL, pack_linear, unpack_linear

HALF = PANEL // 2


def pack_numbers(numbers: Tensor, low: int, bits: int) -> Tensor:
    """Packs integers of a known range.

    Args:
        numbers: [n, k], of any dtype, in [low, low + 2**bits).
        low: the least of them.
        bits: 4 or 8.

    Returns:
        For 8 bits int8 [ceil(n/32), k, 32], `numbers - low - 128`; for 4 bits uint8 [ceil(n/32), k, 16], which has
        `numbers - low` of columns j in the low and j + 16 in the high half of byte j.
    """
    shifted = numbers.to(torch.int16) - (low + (128 if bits == 8 else 0))
    if bits == 8:
        return pack_linear(shifted.to(torch.int8))
    panels = pack_linear(shifted.to(torch.uint8))
    return panels[..., :HALF] | (panels[..., HALF:] << 4)


def dequantized_panels(
    weight: Tensor, scale: Tensor, offset: Tensor | None, group: int, bounds: Tensor | None = None
) -> Tensor:
    """[ceil(n/32), k, 32] as floats."""
    if weight.shape[2] == HALF:
        numbers = torch.cat((weight & 15, weight >> 4), 2).to(torch.float32) - 8
    else:
        numbers = weight.to(torch.float32)
    k = numbers.shape[1]

    def by_row(values: Tensor) -> Tensor:
        if bounds is None:
            return values.repeat_interleave(group, 1)[:, :k]
        rows = torch.arange(k, device=bounds.device)
        return values[:, (rows[:, None] >= bounds[1:-1]).sum(1)]

    panels = numbers * by_row(scale)
    return panels if offset is None else panels + by_row(offset)


def _linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    offset: Tensor | None,
    bounds: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    out_features: int,
    group: int,
    act: int,
) -> Tensor:
    matrix = unpack_linear(dequantized_panels(weight, scale, offset, group, bounds), out_features)
    y = F.linear(x.to(torch.float32), matrix, None if bias is None else bias.to(torch.float32))
    return BY_NUMBER[act](y if residual is None else y + residual).to(x.dtype)


def _linear_fake(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    offset: Tensor | None,
    bounds: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    out_features: int,
    group: int,
    act: int,
) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features))


quantized_linear = define(
    "quantized_linear(Tensor x, Tensor weight, Tensor scale, Tensor? offset, Tensor? bounds, "
    "Tensor? bias, Tensor? residual, int out_features, int group, int act) -> Tensor",
    _linear,
    _linear_fake,
)
