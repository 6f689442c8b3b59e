"""Histograms, and the sorting of rows for sets of slices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def _edges(x: Tensor, bins: list[int], range: list[float]) -> Tensor:
    edges = torch.ops.aten._histogramdd_bin_edges(x, bins, range=range or None)
    return torch.cat(edges) if edges else x.new_empty(0)


def _edges_fake(x: Tensor, bins: list[int], range: list[float]) -> Tensor:
    return x.new_empty((sum(bins) + len(bins),))


def _counts(x: Tensor, edges: Tensor, bins: list[int], weight: Tensor | None) -> Tensor:
    parts = edges.split([count + 1 for count in bins])
    counts: Tensor = torch.ops.aten._histogramdd_from_bin_tensors(x, list(parts), weight=weight)
    return counts


def _counts_fake(x: Tensor, edges: Tensor, bins: list[int], weight: Tensor | None) -> Tensor:
    return x.new_empty(bins)


def _sort_rows(x: Tensor) -> Tensor:
    order = torch.arange(x.shape[0])
    for column in reversed(range(x.shape[1])):
        order = order[x[order, column].argsort(stable=True)]
    return order


def _sort_rows_fake(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0],), dtype=torch.int64)


# x is [points, dims] in both; a dim's edges lie behind those of the one before (csrc/module/declare/histogram.h).
histogram_edges = define("histogram_edges(Tensor x, int[] bins, float[] range) -> Tensor", _edges, _edges_fake)
histogram_counts = define(
    "histogram_counts(Tensor x, Tensor edges, int[] bins, Tensor? weight) -> Tensor", _counts, _counts_fake
)
sort_rows = define("sort_rows(Tensor x) -> Tensor", _sort_rows, _sort_rows_fake)


def edges_of(x: Tensor, bins: Sequence[int], bounds: Sequence[float] | None) -> list[Tensor]:
    """The edges of evenly spaced bins: for each of the dims of `x`, [*, dims], a tensor of [bins + 1].

    Args:
        bounds: the least and greatest edge of each dim; those of the data by default.
    """
    edges = histogram_edges(_points(x), list(bins), list(bounds or ()))
    return list(edges.split([count + 1 for count in bins]))


def counted(x: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """How many of the points `x`, [*, dims], are in each bin; as a density if so asked."""
    bins = [edge.shape[0] - 1 for edge in edges]
    flat = None if weight is None else weight.reshape(-1)
    counts: Tensor = histogram_counts(_points(x), torch.cat(list(edges)), bins, flat)
    if not density:
        return counts
    counts = counts / counts.sum()
    for d, edge in enumerate(edges):
        counts = counts / (edge[1:] - edge[:-1]).reshape([-1 if axis == d else 1 for axis in range(len(edges))])
    return counts


def _points(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])
