"""Gradients of operators that TorchInductor has code for, but not for their backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.table import aten, decomposes


@decomposes(aten.masked_scatter_backward.default)
def _masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Any:
    """What each element of the source gets: those that were taken, in order; zero for what was left over."""
    taken = mask.expand_as(grad_output).reshape(-1)
    count = math.prod(sizes)
    # One place more, for what came from elsewhere.
    place = torch.where(taken, taken.to(torch.int64).cumsum(0) - 1, count)
    gathered = grad_output.new_zeros(count + 1).scatter(0, place, grad_output.reshape(-1))
    return gathered[:count].view(list(sizes))


@decomposes(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(grad_w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
    """Of w = v * (g / |v|): what v gets has no part along v."""
    others = [axis for axis in range(v.dim()) if axis != dim]
    inverse = 1 / norms.to(wide(v.dtype))
    along = (grad_w * v).sum(others, keepdim=True, dtype=inverse.dtype) * inverse
    of_v = (grad_w - v * (along * inverse)) * (g * inverse)
    return of_v.to(v.dtype), along.to(g.dtype)


@decomposes(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def _shrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Any:
    # NaN is not between the bounds.
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(grad), grad)
