"""Comparisons that return a Python bool: here a data-dependent one, which `torch.cond` and `torch._check` take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.overrides.table import overrides


@overrides(torch.equal, Tensor.equal)
def _equal(input: Tensor, other: Tensor) -> Any:
    if input.shape != other.shape:
        return False
    return (input == other).all().item()


@overrides(torch.allclose, Tensor.allclose)
def _allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()
