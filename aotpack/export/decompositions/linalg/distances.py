"""Distances between rows: every pair of two matrices (cdist), or of one (pdist).

With all differences in one expression TorchInductor makes a loop over pairs that keeps none of them. Formulas, and what
happens where a distance is 0, are those of torch's kernels (ATen/native/cpu/DistanceOpsKernel.cpp).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes, fixed

# From how many rows on eager takes distances out of a matrix product.
_MANY_ROWS = 25


def _norm(difference: Tensor, p: float) -> Tensor:
    """The p-norm over the last dim, which may have size 0."""
    size = difference.abs()
    if p == 0:
        return size.ceil().clamp(max=1).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (size * size).sum(-1).sqrt()
    if math.isinf(p):
        # A column of zeros, so that there is a greatest also of none.
        return torch.cat([size, torch.zeros_like(size[..., :1])], -1).amax(-1) if size.shape[-1] != 0 else size.sum(-1)
    return size.pow(p).sum(-1).pow(1 / p)


def _gradient(difference: Tensor, p: float, grad: Tensor, distance: Tensor) -> Tensor:
    """The gradient of each distance with respect to the row that is subtracted from."""
    if p == 0:
        return torch.zeros_like(difference) * grad
    if p == 1:
        return grad * difference.sign()
    size = difference.abs()
    if math.isinf(p):
        return grad * difference.sign() * (1 - (size - distance).abs().ceil().clamp(max=1))
    if p == 2:
        slope = grad * difference / distance
    elif p < 2:
        slope = difference.sign() * size.pow(p - 1) * grad / distance.pow(p - 1)
        if p < 1:
            slope = torch.where(difference == 0, 0, slope)
    else:
        slope = difference * size.pow(p - 2) * grad / distance.pow(p - 1)
    return torch.where(distance == 0, 0, slope)


@decomposes(aten._cdist_forward.default)
def _cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Any:
    rows = (x1.shape[-2], x2.shape[-2])
    many = fixed(*rows) and max(rows) > _MANY_ROWS
    if p == 2 and (compute_mode == 1 or (not compute_mode and many)):
        return _euclidean(x1, x2)
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@decomposes(aten._euclidean_dist.default)
def _euclidean(x1: Tensor, x2: Tensor) -> Any:
    """The root of |a|^2 + |b|^2 - 2ab, all in one product."""
    norm1, norm2 = x1.pow(2).sum(-1, keepdim=True), x2.pow(2).sum(-1, keepdim=True)
    left = torch.cat([x1 * -2, norm1, torch.ones_like(norm1)], -1)
    right = torch.cat([x2, torch.ones_like(norm2), norm2], -1)
    return left.matmul(right.transpose(-2, -1)).clamp(min=0).sqrt()


@decomposes(aten._cdist_backward.default)
def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Any:
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    # Batches may have been broadcast.
    return _gradient(difference, p, grad.unsqueeze(-1), cdist.unsqueeze(-1)).sum(-2).sum_to_size(x1.shape)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of all pairs (i, j), i < j, in order: two of [n (n - 1) / 2]."""
    n = x.shape[0]
    if fixed(n):
        i, j = torch.triu_indices(n, n, 1, device=x.device)
        return i, j
    places = torch.arange(n, device=x.device)
    i, j = torch.nonzero_static(places.unsqueeze(1) < places, size=n * (n - 1) // 2).unbind(1)
    return i, j


@decomposes(aten._pdist_forward.default)
def _pdist_forward(x: Tensor, p: float = 2.0) -> Any:
    i, j = _pairs(x)
    return _norm(x[i] - x[j], p)


@decomposes(aten._pdist_backward.default)
def _pdist_backward(grad: Tensor, x: Tensor, p: float, pdist: Tensor) -> Any:
    i, j = _pairs(x)
    square = x.new_zeros((x.shape[0], x.shape[0]))

    def both(pairs: Tensor) -> Tensor:
        return square.index_put([i, j], pairs).index_put([j, i], pairs).unsqueeze(-1)

    # The gradient of a pair is odd in the difference: a row's is a sum over all others, whichever comes first.
    return _gradient(x.unsqueeze(1) - x.unsqueeze(0), p, both(grad), both(pdist)).sum(1)
