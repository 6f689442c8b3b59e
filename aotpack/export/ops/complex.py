"""What is left to do on complex tensors themselves: running products and sums of exponentials, which no real scan
computes, and writing them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def _reference(z: Tensor, dim: int) -> Tensor:
    return torch.cumprod(z, dim).contiguous()


def _fake(z: Tensor, dim: int) -> Tensor:
    return z.new_empty(z.shape)


def _store(z: Tensor, source: Tensor) -> None:
    z.copy_(source)


def _store_fake(z: Tensor, source: Tensor) -> None:
    return None


complex_cumprod = define("complex_cumprod(Tensor self, int dim) -> Tensor", _reference, _fake)
complex_logcumsumexp = define(
    "complex_logcumsumexp(Tensor self, int dim) -> Tensor",
    lambda z, dim: torch.logcumsumexp(z, dim).contiguous(),
    _fake,
)
# What `copy_` does; TorchInductor calls that of complex tensors through libtorch's dispatcher.
complex_store = define("complex_store(Tensor(a!) self, Tensor source) -> ()", _store, _store_fake)
