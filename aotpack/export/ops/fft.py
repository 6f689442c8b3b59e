"""Fourier transforms.

torch's `_fft_c2c`, `_fft_r2c` and `_fft_c2r` with one argument more: the order of the result's dims, which torch takes
from the argument's strides in ways that depend on the library that it was built with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.layout import dense_strides
from aotpack.export.ops.registry import define

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_REAL = {complex_: real for real, complex_ in _COMPLEX.items()}


def _ordered(x: Tensor, order: list[int]) -> Tensor:
    return torch.empty_strided(x.shape, dense_strides(x.shape, order), dtype=x.dtype).copy_(x)


def _c2c(x: Tensor, dim: list[int], normalization: int, forward: bool, order: list[int]) -> Tensor:
    return _ordered(torch.ops.aten._fft_c2c(x, dim, normalization, forward), order)


def _c2c_fake(x: Tensor, dim: list[int], normalization: int, forward: bool, order: list[int]) -> Tensor:
    return x.new_empty_strided(x.shape, dense_strides(x.shape, order))


def _r2c(x: Tensor, dim: list[int], normalization: int, onesided: bool, order: list[int]) -> Tensor:
    return _ordered(torch.ops.aten._fft_r2c(x, dim, normalization, onesided), order)


def _r2c_fake(x: Tensor, dim: list[int], normalization: int, onesided: bool, order: list[int]) -> Tensor:
    sizes = list(x.shape)
    if onesided:
        sizes[dim[-1]] = sizes[dim[-1]] // 2 + 1
    return x.new_empty_strided(sizes, dense_strides(sizes, order), dtype=_COMPLEX[x.dtype])


def _c2r(x: Tensor, dim: list[int], normalization: int, last_dim_size: int, order: list[int]) -> Tensor:
    return _ordered(torch.ops.aten._fft_c2r(x, dim, normalization, last_dim_size), order)


def _c2r_fake(x: Tensor, dim: list[int], normalization: int, last_dim_size: int, order: list[int]) -> Tensor:
    sizes = list(x.shape)
    sizes[dim[-1]] = last_dim_size
    return x.new_empty_strided(sizes, dense_strides(sizes, order), dtype=_REAL[x.dtype])


fft_c2c = define(
    "fft_c2c(Tensor self, int[] dim, int normalization, bool forward, int[] order) -> Tensor", _c2c, _c2c_fake
)
fft_r2c = define(
    "fft_r2c(Tensor self, int[] dim, int normalization, bool onesided, int[] order) -> Tensor", _r2c, _r2c_fake
)
fft_c2r = define(
    "fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size, int[] order) -> Tensor", _c2r, _c2r_fake
)
