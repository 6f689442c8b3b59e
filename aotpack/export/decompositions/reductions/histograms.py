"""Histograms, and counts of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.histogram import counted, edges_of


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
    (edges,) = edges_of(points, [bins], range)
    return counted(points, [edges], weight, density), edges.clone()


@decomposes(aten.histogram.bins_tensor)
def _histogram_of_edges(x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    return counted(x.reshape(-1, 1), [bins], weight, density), bins.clone()


@decomposes(aten._histogramdd_bin_edges.default)
def _bin_edges(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return [edges.clone() for edges in edges_of(x, bins, range)]


@decomposes(aten._histogramdd_from_bin_cts.default)
def _from_counts(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return counted(x, edges_of(x, bins, range), weight, density)


@decomposes(aten._histogramdd_from_bin_tensors.default)
def _from_edges(x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Any:
    return counted(x, bins, weight, density)


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
