"""Pooling with windows that TorchInductor does not unroll, and the backward of all poolings.

Averages are sums over views: padding and `unfold` are inlined into the loops that read them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.nn.windows import (
    UNROLLED,
    gathered,
    laid_like,
    pooled_size,
    scattered,
    spread,
    window_dims,
)
from aotpack.export.decompositions.table import aten, decomposes


def _divisors(
    x: Tensor,
    counts: Sequence[Any],
    kernel: Sequence[Any],
    stride: Sequence[Any],
    padding: Sequence[Any],
    count_padding: bool,
    override: int | None,
) -> int | Tensor:
    """What the sum of each window is divided by, [n_1, n_2, ...] or one number."""
    if override is not None:
        return override
    divisor = torch.ones((), dtype=torch.int64, device=x.device)
    for d, count in enumerate(counts):
        size = x.shape[x.dim() - len(counts) + d]
        start = torch.arange(count, device=x.device) * stride[d] - padding[d]
        # Padding counts, but not what a last window has beyond it.
        end = torch.minimum(start + kernel[d], torch.full_like(start, size + padding[d]))
        if not count_padding:
            start, end = start.clamp_min(0), torch.minimum(end, torch.full_like(end, size))
        divisor = divisor * (end - start).view(-1, *([1] * (len(counts) - 1 - d)))
    return divisor


def _quotient(total: Tensor, divisor: int | Tensor, dtype: torch.dtype) -> Tensor:
    return (total / divisor if dtype.is_floating_point else torch.div(total, divisor, rounding_mode="trunc")).to(dtype)


def _avg_pool(
    spatial: int,
    x: Tensor,
    kernel_size: Sequence[Any],
    stride: Sequence[Any] = (),
    padding: int | Sequence[Any] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    kernel = spread(kernel_size, spatial)
    if x.dtype.is_floating_point and prod(kernel) <= UNROLLED:
        return NotImplemented
    steps, pads = spread(stride, spatial, kernel), spread(padding, spatial)
    sizes = x.shape[-spatial:]
    counts = [pooled_size(*numbers, 1, ceil_mode) for numbers in zip(sizes, kernel, steps, pads, strict=True)]
    behind = [(n - 1) * s + k - size - p for n, s, k, size, p in zip(counts, steps, kernel, sizes, pads, strict=True)]
    values = x.to(wide(x.dtype))
    if any(not isinstance(pad, int) or pad != 0 for pad in (*pads, *behind)):
        both = [pad for pair in reversed(list(zip(pads, behind, strict=True))) for pad in pair]
        values = aten.constant_pad_nd.default(values, both)
    for d in range(spatial):
        values = values.unfold(x.dim() - spatial + d, kernel[d], steps[d])
    total = values.sum(list(range(x.dim(), x.dim() + spatial)))
    divisor = _divisors(x, counts, kernel, steps, pads, count_include_pad, divisor_override)
    return laid_like(_quotient(total, divisor, x.dtype), x)


def _avg_pool_backward(
    spatial: int,
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[Any],
    stride: Sequence[Any],
    padding: int | Sequence[Any],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    kernel = spread(kernel_size, spatial)
    steps, pads = spread(stride, spatial, kernel), spread(padding, spatial)
    counts = gradient.shape[-spatial:]
    shares = gradient.to(wide(x.dtype))
    divisor = _divisors(x, counts, kernel, steps, pads, count_include_pad, divisor_override)
    shares = _quotient(shares, divisor, shares.dtype)
    # The place i of x is in the windows from ceil((i + p - k + 1) / s) to floor((i + p) / s).
    starts, ends, widths = [], [], []
    for d in range(spatial):
        each = torch.arange(x.shape[x.dim() - spatial + d], device=x.device) + pads[d]
        starts.append(((each - kernel[d]) // steps[d] + 1).clamp_min(0))
        ends.append(torch.minimum(each // steps[d] + 1, torch.full_like(each, counts[d])))
        widths.append((kernel[d] + steps[d] - 1) // steps[d])
    values, _, _ = gathered(shares, starts, ends, widths, 0.0)
    return laid_like(values.sum(window_dims(x.dim(), spatial)).to(x.dtype), x)


@decomposes(aten.max_pool2d_with_indices_backward.default)
def _max_pool2d_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[Any],
    stride: Sequence[Any],
    padding: int | Sequence[Any],
    dilation: int | Sequence[Any],
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    kernel = spread(kernel_size, 2)
    steps = spread(stride, 2, kernel)
    if all(d == 1 for d in spread(dilation, 2)):
        # So many windows overlap, for which TorchInductor has code of its own.
        overlap = prod(
            max(1, *(h // s - max(0, (h - k) // s) for h in range(2 * k))) for k, s in zip(kernel, steps, strict=True)
        )
        listed = (kernel_size, padding, dilation)
        if overlap <= UNROLLED and all(not isinstance(v, int) and len(v) == 2 for v in listed) and len(stride) != 1:
            return NotImplemented
    return laid_like(scattered(gradient, indices, x, 2), x)


@decomposes(aten.max_pool3d_with_indices_backward.default)
def _max_pool3d_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[Any],
    stride: Sequence[Any],
    padding: int | Sequence[Any],
    dilation: int | Sequence[Any],
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    return laid_like(scattered(gradient, indices, x, 3), x)


def _fractional_max_pool(
    spatial: int, x: Tensor, kernel_size: Sequence[Any], output_size: Sequence[Any], samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Where windows begin follows from `samples`, [batch, channels, spatial] in [0, 1): of three dims their numbers are
    in the order of the dims, of two in the reverse. TorchInductor (2.11 to 2.13) reverses both.
    """
    lead = x.dim() - spatial
    drawn = samples[0] if lead == 1 else samples
    index = torch.zeros((), dtype=torch.int64, device=x.device)
    for d in range(spatial):
        size, kernel, count = x.shape[lead + d], kernel_size[d], output_size[d]
        number = drawn[..., d if spatial == 3 else spatial - 1 - d, None]
        step = samples.new_full((), size - kernel) / samples.new_full((), max(count - 1, 1))
        each = torch.arange(count, dtype=samples.dtype, device=x.device)
        start = ((each + number) * step).to(torch.int64) - (number * step).to(torch.int64)
        start = torch.where(each < count - 1, start, torch.full_like(start, size - kernel))
        place = start[..., None] + torch.arange(kernel, device=x.device)
        shape = [1] * (2 * spatial)
        shape[d], shape[spatial + d] = count, kernel
        index = index * size + place.view(*place.shape[:-2], *shape)
    index = index.flatten(lead + spatial)
    values = x.flatten(lead).gather(-1, index.flatten(lead)).view(index.shape)
    best, which = values.max(-1)
    return best, index.gather(-1, which[..., None])[..., 0]


def _fractional_max_pool_backward(
    spatial: int, gradient: Tensor, x: Tensor, kernel_size: Sequence[Any], output_size: Sequence[Any], indices: Tensor
) -> Any:
    return scattered(gradient, indices, x, spatial)


for _spatial, _pool, _average_backward, _fractional, _fractional_backward in (
    (2, aten.avg_pool2d, aten.avg_pool2d_backward, aten.fractional_max_pool2d, aten.fractional_max_pool2d_backward),
    (3, aten.avg_pool3d, aten.avg_pool3d_backward, aten.fractional_max_pool3d, aten.fractional_max_pool3d_backward),
):
    decomposes(_pool.default)(functools.partial(_avg_pool, _spatial))
    decomposes(_average_backward.default)(functools.partial(_avg_pool_backward, _spatial))
    decomposes(_fractional.default)(functools.partial(_fractional_max_pool, _spatial))
    decomposes(_fractional_backward.default)(functools.partial(_fractional_max_pool_backward, _spatial))
