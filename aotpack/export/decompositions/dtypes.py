"""Dtypes that decompositions compute in."""

from __future__ import annotations

import torch


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of `dtype` are summed."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
