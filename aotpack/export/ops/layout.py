"""Copies into a layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def channels_last_strides(sizes: Sequence[int | torch.SymInt]) -> list[int | torch.SymInt]:
    """Strides of a dense [n, c, *spatial] tensor that lies as [n, *spatial, c]."""
    return dense_strides(sizes, (0, *range(2, len(sizes)), 1))


def dense_strides(sizes: Sequence[int | torch.SymInt], order: Sequence[int]) -> list[int | torch.SymInt]:
    """Strides of a dense tensor whose dims lie in `order`, from outermost to innermost."""
    strides: list[int | torch.SymInt] = [0] * len(sizes)
    step: int | torch.SymInt = 1
    for d in reversed(order):
        strides[d] = step
        step = step * sizes[d]
    return strides


def _to_layout(x: Tensor, order: list[int]) -> Tensor:
    return torch.empty_strided(x.shape, dense_strides(x.shape, order), dtype=x.dtype).copy_(x)


def _to_layout_fake(x: Tensor, order: list[int]) -> Tensor:
    return x.new_empty_strided(x.shape, dense_strides(x.shape, order))


to_layout = define(
    "to_layout(Tensor x, int[] order) -> Tensor",
    _to_layout,
    _to_layout_fake,
)
