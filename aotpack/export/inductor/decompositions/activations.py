"""Activations and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes


@decomposes(aten.glu.default)
def _glu(x: Tensor, dim: int = -1) -> Any:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid()


@decomposes(aten._trilinear.default)
def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    for axis in sorted(expand1):
        i1 = i1.unsqueeze(axis)
    for axis in sorted(expand2):
        i2 = i2.unsqueeze(axis)
    for axis in sorted(expand3):
        i3 = i3.unsqueeze(axis)
    product = i1 * i2 * i3
    return product.sum(list(sumdim)) if sumdim else product
