"""Adaptive pooling of any size, and its backward.

Window i of n outputs over a dim of size s is [floor(i s / n), ceil((i + 1) s / n)).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.nn.windows import UNROLLED, gathered, greatest, laid_like, scattered, window_dims
from aotpack.export.decompositions.table import aten, decomposes, fixed


def _bounds(size: Any, count: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the windows begin and end."""
    each = torch.arange(count, device=device)
    return each * size // count, ((each + 1) * size + count - 1) // count


def _windows(x: Tensor, outputs: Sequence[Any], fill: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    sizes = x.shape[-len(outputs) :]
    bounds = [_bounds(size, count, x.device) for size, count in zip(sizes, outputs, strict=True)]
    widths = [_width(size, count) for size, count in zip(sizes, outputs, strict=True)]
    return gathered(x, [start for start, _ in bounds], [end for _, end in bounds], widths, fill)


def _width(size: Any, count: Any) -> Any:
    """At most so many places are in a window; it may begin and end inside of one."""
    if fixed(size, count) and count > 0 and size % count == 0:
        return size // count
    return (size + count - 1) // count + 1


def _unrolled(x: Tensor, output_size: Sequence[Any]) -> bool:
    """Whether TorchInductor has code of its own."""
    sizes = x.shape[-len(output_size) :]
    if len(output_size) != 2 or not fixed(*sizes, *output_size):
        return False
    if 0 in output_size or all(size % count == 0 for size, count in zip(sizes, output_size, strict=True)):
        return True
    widest: int = prod((s + n - 1 + n - 1) // n for s, n in zip(sizes, output_size, strict=True))
    return widest <= UNROLLED


def _empty(x: Tensor, output_size: Sequence[Any], dtype: torch.dtype) -> Tensor:
    return torch.empty([*x.shape[: -len(output_size)], *output_size], dtype=dtype, device=x.device)


@decomposes(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def _adaptive_avg_pool(x: Tensor, output_size: Sequence[Any]) -> Any:
    if _unrolled(x, output_size):
        return NotImplemented
    if fixed(*output_size) and 0 in output_size:
        return _empty(x, output_size, x.dtype)
    values, inside, _ = _windows(x, output_size, 0.0)
    total = values.to(wide(x.dtype)).sum(window_dims(x.dim(), len(output_size)))
    count = inside.sum([2 * d + 1 for d in range(len(output_size))])
    return laid_like((total / count).to(x.dtype), x)


@decomposes(aten._adaptive_avg_pool2d_backward.default)
def _adaptive_avg_pool2d_backward(gradient: Tensor, x: Tensor) -> Any:
    return _spread_average(gradient, x, 2)


@decomposes(aten._adaptive_avg_pool3d_backward.default)
def _adaptive_avg_pool3d_backward(gradient: Tensor, x: Tensor) -> Any:
    return _spread_average(gradient, x, 3)


def _spread_average(gradient: Tensor, x: Tensor, spatial: int) -> Tensor:
    outputs = gradient.shape[-spatial:]
    if fixed(*outputs) and 0 in outputs:
        return torch.zeros_like(x)
    # A place j of s takes part in the windows i with i s < (j + 1) n and (i + 1) s > j n: [floor(j n / s),
    # ceil((j + 1) n / s)), the same formula with outputs and places exchanged.
    shares = gradient.to(wide(x.dtype))
    for d, (size, count) in enumerate(zip(x.shape[-spatial:], outputs, strict=True)):
        start, end = _bounds(size, count, x.device)
        shares = shares / (end - start).view(-1, *([1] * (spatial - 1 - d)))
    values, _, _ = _windows(shares, x.shape[-spatial:], 0.0)
    return laid_like(values.sum(window_dims(x.dim(), spatial)).to(x.dtype), x)


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(x: Tensor, output_size: Sequence[Any]) -> Any:
    if _unrolled(x, output_size):
        return NotImplemented
    if fixed(*output_size) and 0 in output_size:
        return _empty(x, output_size, x.dtype), _empty(x, output_size, torch.int64)
    values, _, places = _windows(x, output_size, float("-inf"))
    best, index = greatest(values, places, x.shape[-len(output_size) :])
    return laid_like(best, x), laid_like(index, x)


@decomposes(aten.adaptive_max_pool2d_backward.default)
def _adaptive_max_pool2d_backward(gradient: Tensor, x: Tensor, indices: Tensor) -> Any:
    return laid_like(scattered(gradient, indices, x, 2), x)


@decomposes(aten.adaptive_max_pool3d_backward.default)
def _adaptive_max_pool3d_backward(gradient: Tensor, x: Tensor, indices: Tensor) -> Any:
    return laid_like(scattered(gradient, indices, x, 3), x)
