"""Reductions that are also right over no elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes, fixed


@decomposes(aten.var_mean.correction)
def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    # TorchInductor computes both at once and gives 0 for the mean of nothing, which is NaN.
    axes = range(x.dim()) if dim is None else dim
    sizes = [x.shape[axis] for axis in axes]
    if fixed(*sizes) and 0 not in sizes:
        return NotImplemented
    mean = x.mean(list(axes), keepdim=keepdim)
    return aten.var.correction(x, dim, correction=correction, keepdim=keepdim), mean


@decomposes(aten._aminmax.default)
def _aminmax(x: Tensor) -> Any:
    return tuple(aten.aminmax.default(x))


@decomposes(aten._aminmax.dim)
def _aminmax_of_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return tuple(aten.aminmax.default(x, dim=dim, keepdim=keepdim))


@decomposes(aten._is_all_true.default)
def _is_all_true(x: Tensor) -> Any:
    return x.all()


@decomposes(aten._is_any_true.default)
def _is_any_true(x: Tensor) -> Any:
    return x.any()
