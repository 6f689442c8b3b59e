"""Tensors of evenly spaced numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes


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


def _ends(start: Any, end: Any, dtype: torch.dtype, device: Any) -> tuple[Tensor, Tensor]:
    """Both ends as they are in `dtype`, in double."""
    first, last = (
        end if isinstance(end, Tensor) else torch.full((), end, dtype=torch.float64, device=device)
        for end in (start, end)
    )
    return first.to(dtype).to(torch.float64), last.to(dtype).to(torch.float64)
