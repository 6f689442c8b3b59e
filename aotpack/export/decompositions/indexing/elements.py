"""Picking elements."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes


@decomposes(aten.take.default)
def _take(x: Tensor, index: Tensor) -> Any:
    # Python's brackets would make a number out of an index of rank 0.
    return aten.index.Tensor(x.reshape(-1), [index])


@decomposes(aten.index_add.default)
def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    # TorchInductor would call eager's operator for this dtype.
    if x.dtype != torch.bfloat16:
        return NotImplemented
    added = source if alpha == 1 else source * alpha
    rows = x.reshape(1) if x.dim() == 0 else x
    dim %= rows.dim()
    added = added.reshape((*rows.shape[:dim], index.numel(), *rows.shape[dim + 1 :]))
    places = [None] * dim + [index.reshape(-1)]
    return aten.index_put.default(rows, places, added, True).reshape(x.shape)


@decomposes(aten.scatter_add.default)
def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    # `gather` takes indices of every integer dtype, and this is its backward.
    if index.dtype in (torch.int32, torch.int64):
        return NotImplemented
    return aten.scatter_add.default(x, dim, index.to(torch.int64), source)
