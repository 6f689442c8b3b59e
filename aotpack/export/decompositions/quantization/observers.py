"""Quantization-aware training: fake quantization by the observed range.

Source: torch's `_fused_moving_avg_obs_fq_helper`, with the parameters that FBGEMM chooses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.quantization.fake_quantization import fake_quantize_per_channel, fake_quantized
from aotpack.export.decompositions.table import aten, decomposes

# Scales below it, of which float16 would make subnormal numbers, are not used: FBGEMM's SMALL_SCALE_THRESHOLD, a float.
_LEAST_SCALE = 6.1e-5


@decomposes(aten._fused_moving_avg_obs_fq_helper_functional.default)
def _observed_fake_quantization(
    x: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Any:
    observes, quantizes = observer_on.reshape(-1)[0] != 0, fake_quant_on.reshape(-1)[0] != 0
    if per_row_fake_quant:
        rows = x.transpose(0, ch_axis).flatten(1)
        low, high = rows.amin(1), rows.amax(1)
    else:
        low, high = x.amin().reshape(running_min.shape), x.amax().reshape(running_max.shape)
    low = torch.where(observes, _averaged(running_min, low, averaging_const), running_min)
    high = torch.where(observes, _averaged(running_max, high, averaging_const), running_max)
    chosen, zero = _parameters(low, high, quant_min, quant_max, symmetric_quant)
    chosen = torch.where(quantizes, chosen.to(scale.dtype).reshape(scale.shape), scale)
    zero = torch.where(quantizes, zero.to(zero_point.dtype).reshape(zero_point.shape), zero_point)
    if per_row_fake_quant:
        result, mask = fake_quantize_per_channel(x, chosen, zero, ch_axis, quant_min, quant_max)
    else:
        one = chosen.reshape(-1)[0]
        result, mask = fake_quantized(x, 1.0 / one, one, zero.reshape(-1)[0], quant_min, quant_max)
    return torch.where(quantizes, result, x), mask | ~quantizes, low, high, chosen, zero


def _averaged(old: Tensor, new: Tensor, weight: float) -> Tensor:
    """The first range as it is, later ones with their weight."""
    new = new.to(old.dtype)
    return torch.where(old.isinf(), new, old + weight * (new - old))


def _parameters(low: Tensor, high: Tensor, qmin: int, qmax: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Scale (a float64 of a float32's value) and zero point by which [low, high] becomes [qmin, qmax]."""
    between = (low < 0) & (high > 0)
    if symmetric:
        least, most = -((qmax - qmin) // 2 + 1), (qmax - qmin) // 2
        step = torch.maximum((low / least).abs(), (high / most).abs()).double()
        low = torch.where(between, (step * least).to(low.dtype), low)
        high = torch.where(between, (step * most).to(high.dtype), high)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = (high.double() - low) / (qmax - qmin)
    rounded = scale.float()
    scale = torch.where((rounded == 0) | (1.0 / rounded).isinf(), 0.1, scale)
    # Too small a scale is replaced, and the range grows with it.
    threshold = torch.tensor(_LEAST_SCALE, dtype=torch.float32).double()
    small = scale < threshold
    growth = threshold.float() / scale.float()
    reach = threshold.float() * (qmax - qmin)
    wider_low = torch.where(low == 0, low, torch.where(high == 0, -reach, low * growth))
    wider_high = torch.where(low == 0, reach, torch.where(high == 0, high, high * growth))
    low, high = torch.where(small, wider_low, low), torch.where(small, wider_high, high)
    scale = torch.where(small, threshold, scale)
    # The end of the range whose zero point has less rounding in it.
    from_low, from_high = low / scale, high / scale
    nearer = (abs(qmin) - from_low.abs()) < (abs(qmax) - from_high.abs())
    zero = torch.where(nearer, qmin - from_low, qmax - from_high)
    if symmetric:
        zero = torch.where((low < 0) & (high > 0), (qmin + qmax) / 2, zero)
    return scale, zero.clamp(qmin, qmax).round()
