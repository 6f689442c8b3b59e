"""Draws whose operator cannot be written in a graph: `Tensor.random_(from, to)`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.random import last_integer, random_between
from aotpack.export.overrides.table import overrides


@overrides(Tensor.random_)
def _random_(input: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
    named = dict(zip(("from", "to"), args, strict=False)) | kwargs
    if generator is not None or len(named) < 2 or input.is_complex():
        return NotImplemented
    low, to = named["from"], named["to"]
    full = to is None and isinstance(low, int) and low == torch.iinfo(torch.int64).min
    if full and input.dtype not in (torch.int64, torch.float64, torch.float32, torch.bfloat16):
        raise RuntimeError("random_ of all of int64 handles only int64, double, float and bfloat16")
    last = torch.iinfo(torch.int64).max if full else last_integer(input.dtype) if to is None else to - 1
    if isinstance(low, int) and isinstance(last, int):
        if low > last:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={to}")
        least, most = (0, 1) if input.dtype == torch.bool else _range(input.dtype)
        for name, value in (("from", low), ("to - 1", last)):
            if not least <= value <= most:
                raise RuntimeError(f"{name} is out of bounds for {input.dtype}")
    return input.copy_(random_between(input, low, last))


def _range(dtype: torch.dtype) -> tuple[float, float]:
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return limits.min, limits.max
