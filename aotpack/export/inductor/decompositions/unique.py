"""Sets of values, whose size comes out of data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes


def _runs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The runs of equal values in a tensor of rank 1: where they start, the run of each element, their lengths."""
    before = x.new_ones(x.shape, dtype=torch.bool)
    before = before.slice_scatter(x[1:] != x[:-1], 0, 1)
    starts = before.nonzero().squeeze(1)
    run = before.cumsum(0) - 1
    ends = torch.cat([starts[1:], torch.full((1,), x.shape[0], device=x.device)])[: starts.shape[0]]
    return starts, run, ends - starts


@decomposes(aten.unique_consecutive.default)
def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None:
        return NotImplemented
    starts, run, counts = _runs(x.flatten())
    inverse = run.view(x.shape) if return_inverse else x.new_empty(0, dtype=torch.int64)
    return x.flatten()[starts], inverse, counts if return_counts else x.new_empty(0, dtype=torch.int64)


@decomposes(aten._unique2.default)
def _unique2(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, places = x.flatten().sort(stable=True)
    starts, run, counts = _runs(values)
    inverse = x.new_empty(0, dtype=torch.int64)
    if return_inverse:
        inverse = torch.empty_like(places).scatter(0, places, run).view(x.shape)
    return values[starts], inverse, counts if return_counts else x.new_empty(0, dtype=torch.int64)
