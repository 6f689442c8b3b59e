"""Observers of quantization whose Python code recognizes the first call by the values of their ranges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization.observer import MovingAverageMinMaxObserver

from aotpack.export.overrides.table import replaces


@replaces(MovingAverageMinMaxObserver, "forward")
def _forward(self: Any, x_orig: Tensor) -> Tensor:
    if x_orig.numel() == 0:
        return x_orig
    now = torch.aminmax(x_orig.detach().to(self.min_val.dtype))
    first = (self.min_val == float("inf")) & (self.max_val == float("-inf"))
    ranges = [
        torch.where(first, current, before + self.averaging_constant * (current - before))
        for before, current in ((self.min_val, now.min), (self.max_val, now.max))
    ]
    self.min_val.copy_(ranges[0])
    self.max_val.copy_(ranges[1])
    return x_orig
