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
    # As eager has it, the ends are rounded before they become exponents, but the only one is not.
    device = kwargs.get("device")
    ends = [
        end if isinstance(end, Tensor) else torch.full((), end, dtype=torch.float64, device=device)
        for end in (start, end)
    ]
    first, last = (end.to(torch.float64 if steps == 1 else dtype).to(torch.float64) for end in ends)
    return torch.pow(base, torch.linspace(first, last, steps, dtype=torch.float64, device=device)).to(dtype)
