"""Quantization: fake quantization, parameters of tokens, and products with int8 weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.torch_compat.functions import quantized_definitions as definitions

quantized = torch.ops.quantized_decomposed

# What the definitions compute by plain operators, and TorchInductor has nothing for.
for _name in (
    "quantize_per_token",
    "dequantize_per_token",
    "choose_qparams_per_token",
    "choose_qparams_per_token_asymmetric",
    "_choose_qparams_per_token_asymmetric_impl",
    "quantize_per_channel_group",
    "dequantize_per_channel_group",
):
    if hasattr(definitions, _name) and hasattr(quantized, _name):
        decomposes(getattr(quantized, _name).default)(getattr(definitions, _name))


@decomposes(quantized.choose_qparams_symmetric.tensor)
def _choose_qparams_symmetric(x: Tensor, qmin: int, qmax: int, eps: float, dtype: torch.dtype) -> Any:
    low, high = torch.aminmax(x)
    zero = torch.zeros_like(high)
    greatest = torch.maximum(-torch.minimum(low, zero), torch.maximum(high, zero))
    scale = greatest / (float(qmax - qmin) / 2)
    scale = torch.maximum(scale, torch.full((1,), eps, dtype=torch.float32, device=x.device))
    middle = 128 if dtype == torch.uint8 else 0
    return scale.to(torch.float64), torch.full((1,), middle, dtype=torch.int64, device=x.device)


def fake_quantized(x: Tensor, inverse: Any, scale: Any, zero_point: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    steps = torch.round(x.to(wide(x.dtype)) * inverse) + zero_point
    mask = (steps >= low) & (steps <= high)
    return ((steps.clamp(low, high) - zero_point) * scale).to(x.dtype), mask


@decomposes(aten.fake_quantize_per_tensor_affine_cachemask.default)
def _fake_quantize_per_tensor(x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Any:
    # Eager's numbers are floats, the inverse too.
    rounded = torch.tensor(scale, dtype=torch.float32)
    inverse = 1.0 / rounded
    numbers = (inverse.item(), rounded.item()) if not isinstance(scale, torch.SymFloat) else (1.0 / scale, scale)
    return fake_quantized(x, *numbers, zero_point, quant_min, quant_max)


@decomposes(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def _fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, quant_min: int, quant_max: int
) -> Any:
    result, mask = fake_quantized(x, 1.0 / scale, scale, zero_point, quant_min, quant_max)
    on = enabled[0] != 0
    return torch.where(on, result, x), mask | ~on


@decomposes(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Any:
    sizes = [-1 if d == axis % x.dim() else 1 for d in range(x.dim())]
    each, zero = scale.view(sizes), zero_point.view(sizes)
    return fake_quantized(x, 1.0 / each, each, zero, quant_min, quant_max)


@decomposes(aten._fake_quantize_learnable_per_tensor_affine.default)
def _learnable_per_tensor(
    x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Any:
    each = scale.reshape(-1)[0].float()
    zero = zero_point.reshape(-1)[0].float().round().clamp(quant_min, quant_max)
    return fake_quantized(x, 1.0 / each, each, zero, quant_min, quant_max)[0]


@decomposes(aten._fake_quantize_learnable_per_channel_affine.default)
def _learnable_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Any:
    zero = zero_point.round().clamp(quant_min, quant_max)
    return fake_quantize_per_channel(x, scale, zero, axis, quant_min, quant_max)[0]


@decomposes(aten._fake_quantize_learnable_per_tensor_affine_backward.default)
def _learnable_per_tensor_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Any:
    each = scale.reshape(-1)[0]
    # Here eager rounds the zero point by adding a half.
    zero = (zero_point.reshape(-1)[0] + 0.5).clamp(quant_min, quant_max).trunc()
    parts = _learnable_gradients(grad, x, each, zero, quant_min, quant_max, grad_factor)
    return parts[0], parts[1].sum().unsqueeze(0), parts[2].sum().unsqueeze(0)


@decomposes(aten._fake_quantize_learnable_per_channel_affine_backward.default)
def _learnable_per_channel_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Any:
    axis = axis % x.dim()
    sizes = [-1 if d == axis else 1 for d in range(x.dim())]
    others = [d for d in range(x.dim()) if d != axis]
    zero = zero_point.view(sizes).round().clamp(quant_min, quant_max)
    parts = _learnable_gradients(grad, x, scale.view(sizes), zero, quant_min, quant_max, grad_factor)
    return parts[0], *(part.sum(others) if others else part for part in parts[1:])


def _learnable_gradients(
    grad: Tensor, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What x, the scale and the zero point get of each element."""
    inverse = 1.0 / scale
    # The sum is rounded, not the quotient, and it is a fused one: this decides on which side halves go.
    steps = (zero.double() + x.double() * inverse.double()).to(inverse.dtype).round()
    inside = (steps >= low) & (steps <= high)
    bound = steps.clamp(low, high) - zero
    of_scale = torch.where(inside, (bound * scale - x) * inverse, bound)
    nothing = torch.zeros_like(grad)
    return (
        torch.where(inside, grad, nothing),
        grad * of_scale * factor,
        torch.where(inside, nothing, grad * -scale * factor),
    )


@decomposes(aten._weight_int8pack_mm.default)
def _weight_int8pack_mm(x: Tensor, weight: Tensor, scales: Tensor) -> Any:
    # Sums in float, scaled before they are rounded.
    return ((x.float() @ weight.float().t()) * scales.float()).to(x.dtype)
