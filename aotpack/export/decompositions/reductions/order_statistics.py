"""Order statistics."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes, fixed


def _median_at(x: Tensor, dim: int, keepdim: bool, *, ignore_nan: bool) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    values, places = x.sort(dim=dim, stable=True)
    middle = _middle(x, dim, ignore_nan=ignore_nan)
    if ignore_nan and x.is_floating_point():
        middle = middle.clamp(min=0)
    value, place = values.gather(dim, middle), places.gather(dim, middle)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _middle(x: Tensor, dim: int, *, ignore_nan: bool) -> Tensor:
    """The place of the median among the sorted values, with `dim` kept; below 0 where there is none."""
    size = x.shape[dim]
    middle = torch.full((), size - 1, dtype=torch.int64, device=x.device) // 2
    middle = middle.expand([1 if axis == dim % x.dim() else n for axis, n in enumerate(x.shape)])
    if not x.is_floating_point():
        return middle
    # NaN sorts last. One makes the median NaN, at its first place; the other median takes those before it.
    missing = x.isnan().sum(dim, keepdim=True)
    return (size - missing - 1) // 2 if ignore_nan else torch.where(missing > 0, size - missing, middle)


@decomposes(aten.median.dim)
def _median_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median_at(x, dim, keepdim, ignore_nan=False)


@decomposes(aten.nanmedian.dim)
def _nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median_at(x, dim, keepdim, ignore_nan=True)


def _median_of_all(x: Tensor, *, ignore_nan: bool) -> Tensor:
    if any(fixed(size) and size == 0 for size in x.shape):
        return torch.full((), _nan_as(x.dtype), dtype=x.dtype, device=x.device)
    flat = x.flatten()
    if not all(fixed(size) for size in x.shape):
        return _median_of_any_size(flat, ignore_nan=ignore_nan)
    return _median_at(flat, 0, False, ignore_nan=ignore_nan)[0]


def _median_of_any_size(x: Tensor, *, ignore_nan: bool) -> Tensor:
    """The median of [n]; for n = 0 what eager returns, NaN cast to the dtype, which stands behind the sorted values."""
    values = torch.cat([x.sort(stable=True).values, x.new_full((1,), _nan_as(x.dtype))])
    return values.gather(0, _middle(x, 0, ignore_nan=ignore_nan).clamp(min=0)).squeeze(0)


def _nan_as(dtype: torch.dtype) -> float:
    """NaN as torch converts it to a dtype on x86-64."""
    if dtype.is_floating_point:
        return math.nan
    if dtype == torch.bool:
        return True
    return torch.iinfo(dtype).min if dtype in (torch.int32, torch.int64) else 0


@decomposes(aten.median.default)
def _median(x: Tensor) -> Any:
    return _median_of_all(x, ignore_nan=False)


@decomposes(aten.nanmedian.default)
def _nanmedian(x: Tensor) -> Any:
    return _median_of_all(x, ignore_nan=True)
