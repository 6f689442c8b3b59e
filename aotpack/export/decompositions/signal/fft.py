"""Fourier transforms: torch's operators by aotpack's, with results in torch's layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.fft import fft_c2c, fft_c2r, fft_r2c


def _outermost_first(x: Tensor, dims: Iterable[int]) -> list[int]:
    strides = x.stride()
    return sorted(dims, key=lambda d: strides[d], reverse=True)


def _order(x: Tensor, transformed: Sequence[int]) -> list[int]:
    """How the dims of a result lie: with MKL those that are transformed come last, else they lie in their own order."""
    if not torch.backends.mkl.is_available():
        return list(range(x.dim()))
    batch = [d for d in range(x.dim()) if d not in transformed]
    return [*_outermost_first(x, batch), *transformed]


def _wrapped(x: Tensor, dim: Sequence[int]) -> list[int]:
    return [d % x.dim() for d in dim]


@decomposes(aten._fft_c2c.default)
def _fft_c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    if not dim:
        return x.clone()
    dims = _wrapped(x, dim)
    return fft_c2c(x, dims, normalization, forward, _order(x, _outermost_first(x, dims)))


@decomposes(aten._fft_r2c.default)
def _fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    dims = _wrapped(x, dim)
    return fft_r2c(x, dims, normalization, onesided, _order(x, [*_outermost_first(x, dims[:-1]), dims[-1]]))


@decomposes(aten._fft_c2r.default)
def _fft_c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    dims = _wrapped(x, dim)
    order = _order(x, dims[-1:])
    if len(dims) > 1 and torch.backends.mkl.is_available():
        # torch transforms all dims but the last into a tensor that lies in this order, and goes on from there.
        between = _order(x, _outermost_first(x, dims[:-1]))
        order = [*(d for d in between if d != dims[-1]), dims[-1]]
    return fft_c2r(x, dims, normalization, last_dim_size, order)
