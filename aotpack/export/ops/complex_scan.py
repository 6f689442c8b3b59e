"""Running products of complex numbers, which no real scan computes."""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def _reference(z: Tensor, dim: int) -> Tensor:
    return torch.cumprod(z, dim).contiguous()


def _fake(z: Tensor, dim: int) -> Tensor:
    return z.new_empty(z.shape)


complex_cumprod = define("complex_cumprod(Tensor self, int dim) -> Tensor", _reference, _fake)
