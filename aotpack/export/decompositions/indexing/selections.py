"""Selections and counts of GPUs, by sorts and sums: mixtures of experts choose a few of some dozens of experts."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes

# Up to which TorchInductor sorts on GPUs.
_MOST_SORTED = 512
# Each element is compared with each bin.
_MOST_BINS = 256


@decomposes(aten.topk.default)
def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.device.type != "cuda" or x.dim() == 0 or not isinstance(k, int):
        return NotImplemented
    size = x.shape[dim]
    if not isinstance(size, int) or not k <= size <= _MOST_SORTED:
        return NotImplemented
    values, places = aten.sort.default(x, dim, largest)
    return aten.slice.Tensor(values, dim, 0, k).clone(), aten.slice.Tensor(places, dim, 0, k).clone()


def _rounded(number: float, dtype: torch.dtype) -> float:
    return ctypes.c_float(number).value if dtype == torch.float32 else float(number)


@decomposes(aten.histc.default)
def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    # With equal bounds, they are those of the data.
    if x.device.type != "cuda" or x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    if not all(isinstance(value, (int, float)) for value in (bins, min, max)) or not 0 < bins <= _MOST_BINS:
        return NotImplemented
    least, greatest = _rounded(min, x.dtype), _rounded(max, x.dtype)
    width = _rounded(greatest - least, x.dtype)
    if not 0 < width < math.inf:
        return NotImplemented
    values = x.reshape(-1)
    # Not a number is in none.
    inside = (values >= least) & (values <= greatest)
    # In double, and rounded: Triton divides numbers of single precision with an error, which moves those on edges.
    quotients = (((values - least) * bins).double() / width).to(x.dtype)
    # The last bin has its right edge.
    places = quotients.clamp(0, bins - 1).to(torch.int64)
    numbers = torch.arange(bins, device=x.device)
    return ((places == numbers[:, None]) & inside).sum(1).to(x.dtype)
