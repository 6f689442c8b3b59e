"""Histograms, and counts of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes
from aotpack.export.ops.histogram import histogram_counts, histogram_edges


def _points(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _counted(x: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """How many of the points `x`, [points, dims], are in each bin; as a density if so asked."""
    bins = [edge.shape[0] - 1 for edge in edges]
    flat = None if weight is None else weight.reshape(-1)
    counts: Tensor = histogram_counts(x, torch.cat(list(edges)), bins, flat)
    if not density:
        return counts
    counts = counts / counts.sum()
    for d, edge in enumerate(edges):
        counts = counts / (edge[1:] - edge[:-1]).reshape([-1 if axis == d else 1 for axis in range(len(edges))])
    return counts


def _edges(x: Tensor, bins: Sequence[int], bounds: Sequence[float] | None) -> list[Tensor]:
    edges = histogram_edges(x, list(bins), list(bounds or ()))
    return list(edges.split([count + 1 for count in bins]))


@decomposes(aten.histogram.bin_ct)
def _histogram(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    points = x.reshape(-1, 1)
    (edges,) = _edges(points, [bins], range)
    return _counted(points, [edges], weight, density), edges.clone()


@decomposes(aten.histogram.bins_tensor)
def _histogram_of_edges(x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    return _counted(x.reshape(-1, 1), [bins], weight, density), bins.clone()


@decomposes(aten._histogramdd_bin_edges.default)
def _bin_edges(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return [edges.clone() for edges in _edges(_points(x), bins, range)]


@decomposes(aten._histogramdd_from_bin_cts.default)
def _from_counts(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return _counted(_points(x), _edges(_points(x), bins, range), weight, density)


@decomposes(aten._histogramdd_from_bin_tensors.default)
def _from_edges(x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Any:
    return _counted(_points(x), bins, weight, density)


@decomposes(aten.bincount.default)
def _bincount(x: Tensor, weights: Tensor | None = None, minlength: Any = 0) -> Any:
    # One more element, so that there is a greatest and a least also of none.
    wide = torch.cat([x.to(torch.int64), torch.full((1,), -1, device=x.device)])
    aten._assert_async.msg((x >= 0).all(), "bincount only supports 1-d non-negative integral inputs.")
    size: Any = (wide.max() + 1).clamp(min=minlength).item()
    torch._check(size >= 0)
    if weights is None:
        weights = torch.ones_like(wide[:-1])
    elif weights.dtype != torch.float32:
        weights = weights.to(torch.float64)
    counts = torch.zeros((size,), dtype=weights.dtype, device=x.device)
    return counts.index_put([wide[:-1]], weights, accumulate=True)
