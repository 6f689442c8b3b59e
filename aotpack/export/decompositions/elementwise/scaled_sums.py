"""Sums with a factor, `add(x, y, alpha=…)`.

TorchInductor makes one call of a product and a sum that follows it, and overlooks the factor of the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes


@decomposes(aten.add.Tensor)
def _add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    plain = isinstance(alpha, (bool, int, float)) and alpha == 1
    if plain or not isinstance(y, Tensor) or y.is_complex() or y.dtype == torch.bool:
        return NotImplemented
    return torch.add(x, torch.mul(y, alpha))
