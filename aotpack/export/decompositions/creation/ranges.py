"""Tensors of evenly spaced numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes


@decomposes(
    aten.logspace.default, aten.logspace.Tensor_Tensor, aten.logspace.Tensor_Scalar, aten.logspace.Scalar_Tensor
)
def _logspace(
    start: Any, end: Any, steps: Any, base: float = 10.0, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in (torch.bfloat16, torch.float16) or base < 0:
        return NotImplemented
    device = kwargs.get("device")
    # As eager has it, the ends are rounded before they become exponents, but the only one is not.
    first, last = _ends(start, end, torch.float64 if steps == 1 else dtype, device)
    return torch.pow(base, torch.linspace(first, last, steps, dtype=torch.float64, device=device)).to(dtype)


@decomposes(
    aten.linspace.default, aten.linspace.Tensor_Tensor, aten.linspace.Tensor_Scalar, aten.linspace.Scalar_Tensor
)
def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    if dtype is None or dtype.is_floating_point or dtype.is_complex or not isinstance(steps, int) or steps < 2:
        return NotImplemented
    device = kwargs.get("device")
    # As eager has it, the ends become integers first, and each half is counted from its end.
    first, last = _ends(start, end, dtype, device)
    step = (last - first) / (steps - 1)
    index = torch.arange(steps, dtype=torch.int64, device=device).to(torch.float64)
    return torch.where(index < steps // 2, first + step * index, last - step * (steps - 1 - index)).to(dtype)


@decomposes(aten.range.default, aten.range.step)
def _range(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    # It includes its end, and its numbers are floats unless a dtype is given.
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not all(isinstance(number, (int, float)) for number in (start, end, step)):
        return NotImplemented
    count = math.floor((end - start) / step) + 1
    exact = torch.float64 if dtype.is_floating_point else torch.int64
    return (torch.arange(count, dtype=exact, device=kwargs.get("device")) * step + start).to(dtype)


@decomposes(aten.fft_fftfreq.default)
def fftfreq(n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    place = torch.arange(n, device=kwargs.get("device"))
    return _frequencies(torch.where(place < (n + 1) // 2, place, place - n), n, d, dtype)


@decomposes(aten.fft_rfftfreq.default)
def rfftfreq(n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    return _frequencies(torch.arange(n // 2 + 1, device=kwargs.get("device")), n, d, dtype)


def _frequencies(place: Tensor, n: Any, d: float, dtype: torch.dtype | None) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    # As eager has it, the factor is rounded, not each of the quotients.
    return place.to(dtype) * (1.0 / (n * d))


def _ends(start: Any, end: Any, dtype: torch.dtype, device: Any) -> tuple[Tensor, Tensor]:
    """Both ends as they are in `dtype`, in double."""
    first, last = (
        end if isinstance(end, Tensor) else torch.full((), end, dtype=torch.float64, device=device)
        for end in (start, end)
    )
    return first.to(dtype).to(torch.float64), last.to(dtype).to(torch.float64)
