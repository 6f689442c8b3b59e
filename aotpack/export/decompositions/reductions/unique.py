"""Sets of values, whose size depends on data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.histogram import sort_rows


def _runs(different: Tensor, size: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The runs of equal things in a row: where they start, the run of each thing, their lengths.

    `different`, [size - 1] (or none), says of each thing but the first whether it differs from the one before.
    """
    before = different.new_ones((size,)).slice_scatter(different, 0, 1)
    starts = before.nonzero().squeeze(1)
    run = before.cumsum(0) - 1
    ends = torch.cat([starts[1:], torch.full((1,), size, device=different.device)])[: starts.shape[0]]
    return starts, run, ends - starts


def _rows_of(x: Tensor, dim: int) -> Tensor:
    """What lies at each place of a dim, as a row: [size, the rest]."""
    rest = 1
    for axis, size in enumerate(x.shape):
        rest = rest if axis == dim % x.dim() else rest * size
    return x.movedim(dim, 0).reshape(x.shape[dim], rest)


def _none(x: Tensor) -> Tensor:
    return x.new_empty(0, dtype=torch.int64)


@decomposes(aten.unique_consecutive.default)
def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None:
        return _unique_dim_consecutive(x, dim, return_inverse, return_counts)
    flat = x.flatten()
    starts, run, counts = _runs(flat[1:] != flat[:-1], flat.shape[0])
    return (
        flat[starts],
        run.view(x.shape) if return_inverse else _none(x),
        counts if return_counts else _none(x),
    )


@decomposes(aten._unique2.default)
def _unique2(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, places = x.flatten().sort(stable=True)
    starts, run, counts = _runs(values[1:] != values[:-1], values.shape[0])
    inverse = torch.empty_like(places).scatter(0, places, run).view(x.shape) if return_inverse else _none(x)
    return values[starts], inverse, counts if return_counts else _none(x)


@decomposes(aten._unique.default)
def _unique(x: Tensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    return aten._unique2.default(x, sorted, return_inverse)[:2]


# Along a dim torch gives inverse and counts on a CPU whether they are asked for or not.


@decomposes(aten.unique_dim_consecutive.default)
def _unique_dim_consecutive(x: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    rows = _rows_of(x, dim)
    starts, run, counts = _runs((rows[1:] != rows[:-1]).any(1), rows.shape[0])
    return x.index_select(dim, starts), run, counts


@decomposes(aten.unique_dim.default)
def _unique_dim(
    x: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    rows = _rows_of(x, dim)
    order = sort_rows(rows)
    ordered = rows[order]
    starts, run, counts = _runs((ordered[1:] != ordered[:-1]).any(1), rows.shape[0])
    return x.index_select(dim, order[starts]), torch.empty_like(order).scatter(0, order, run), counts
