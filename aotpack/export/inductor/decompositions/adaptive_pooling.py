"""Adaptive pooling of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes, fixed


def _windows(x: Tensor, outputs: Sequence[Any], fill: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What adaptive pooling reduces over.

    Window i of n outputs over a dim of size s is [floor(i*s/n), ceil((i+1)*s/n)).

    Returns:
        values: [*batch, n_1, w_1, n_2, w_2, ...] with places outside of windows filled.
        inside: [n_1, w_1, n_2, w_2, ...], bool: which places are inside.
        places: for each pooled dim, [n, w]: the place in `x`.
    """
    spatial = len(outputs)
    places: list[Tensor] = []
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    values = x
    for d, count in enumerate(outputs):
        axis = x.dim() - spatial + d
        size = x.shape[axis]
        start = torch.arange(count, device=x.device) * size // count
        end = ((torch.arange(count, device=x.device) + 1) * size + count - 1) // count
        width = (size + count - 1) // count + 1
        place = start[:, None] + torch.arange(width, device=x.device)
        tail = [1] * (2 * (spatial - 1 - d))
        inside = inside & (place < end[:, None]).view(*place.shape, *tail)
        # Outside of the window, but not outside of the tensor.
        place = torch.minimum(place, torch.full((), size - 1, device=x.device, dtype=place.dtype))
        places.append(place)
        index: list[slice | Tensor] = [slice(None)] * (axis + d)
        values = values[(*index, place)]
    return torch.where(inside, values, torch.full((), fill, dtype=x.dtype, device=x.device)), inside, places


def _pooled_axes(x: Tensor, spatial: int) -> list[int]:
    first = x.dim() - spatial
    return [first + 2 * d + 1 for d in range(spatial)]


@decomposes(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def _adaptive_avg_pool(x: Tensor, output_size: Sequence[Any]) -> Any:
    if len(output_size) == 2 and fixed(*x.shape[-2:]):
        return NotImplemented
    values, inside, _ = _windows(x, output_size, 0.0)
    wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    total = values.to(wide).sum(_pooled_axes(x, len(output_size)))
    count = inside.sum([2 * d + 1 for d in range(len(output_size))])
    return (total / count).to(x.dtype)


@decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(x: Tensor, output_size: Sequence[Any]) -> Any:
    spatial = len(output_size)
    if spatial == 2 and fixed(*x.shape[-2:]):
        return NotImplemented
    values, _, places = _windows(x, output_size, float("-inf"))
    # All windows' places behind each other, in row-major order: the first maximum counts, as it does in torch.
    batch = x.dim() - spatial
    order = [*range(batch), *(batch + 2 * d for d in range(spatial)), *(batch + 2 * d + 1 for d in range(spatial))]
    values = values.permute(order)
    best, which = values.flatten(batch + spatial).max(-1)
    index = torch.zeros_like(which)
    rest = which
    coordinates: list[Tensor] = []
    for place in reversed(places):
        width = place.shape[1]
        coordinates.append(rest % width)
        rest = rest // width
    for d, step in enumerate(reversed(coordinates)):
        count = places[d].shape[0]
        rows = torch.arange(count, device=x.device).view(-1, *([1] * (spatial - 1 - d)))
        index = index * x.shape[batch + d] + places[d][rows.expand(which.shape), step]
    return best, index
