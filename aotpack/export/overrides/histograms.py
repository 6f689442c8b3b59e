"""Histograms: torch has no sizes for the results of its own operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.histogram import counted, edges_of
from aotpack.export.overrides.table import overrides


@overrides(torch.histogram, Tensor.histogram)
def _histogram(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    points = input.reshape(-1, 1)
    edges = bins.clone() if isinstance(bins, Tensor) else edges_of(points, [bins], range)[0].clone()
    return torch.return_types.histogram((counted(points, [edges], weight, density), edges))


@overrides(torch.histogramdd)
def _histogramdd(
    input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    if isinstance(bins, int):
        bins = [bins] * input.shape[-1]
    if all(isinstance(count, int) for count in bins):
        edges = [edge.clone() for edge in edges_of(input, bins, range)]
    else:
        edges = [edge.clone() for edge in bins]
    return torch.return_types.histogramdd((counted(input, edges, weight, density), tuple(edges)))
