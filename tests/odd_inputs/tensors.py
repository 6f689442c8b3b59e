"""Tensors that cases are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

HALVES = (torch.bfloat16, torch.float16)
KERNEL_DTYPES = (torch.float32, *HALVES)
REALS = (torch.float32, torch.float64, *HALVES, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)


def around(*sizes: int, ones: bool = True, zeros: Sequence[int] | None = None) -> Iterator[tuple[int, ...]]:
    """`sizes`, then these with one of them 1, then with one of them 0 (those at the positions `zeros`; all)."""
    yield sizes
    for i in range(len(sizes)):
        if ones:
            yield (*sizes[:i], 1, *sizes[i + 1 :])
    for i in range(len(sizes)) if zeros is None else zeros:
        yield (*sizes[:i], 0, *sizes[i + 1 :])


def values(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random elements: normal, or small integers."""
    if dtype == torch.bool:
        return torch.rand(sizes) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -5, 6, sizes).to(dtype)


def positive(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random elements in [0.5, 1.5)."""
    return (torch.rand(sizes, dtype=torch.float64) + 0.5).to(dtype)


def indices(size: int, *sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Indices into a dim of `size`."""
    return torch.randint(0, max(size, 1), sizes).to(dtype)


def distinct(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """All elements differ, so that an order of them is the only one."""
    count = 1
    for size in sizes:
        count *= size
    return (torch.randperm(count).to(torch.float64) - count // 2).to(dtype).reshape(sizes)
