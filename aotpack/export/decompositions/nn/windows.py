"""The windows of a tensor along its last dims, which poolings reduce over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.torch_compat.functions import suggest_memory_format

# What TorchInductor unrolls; it leaves larger windows to a kernel.
UNROLLED = 25


def spread(values: int | Sequence[Any], count: int, default: Sequence[Any] = ()) -> list[Any]:
    """One value for each of `count` dims: torch takes a single one for all of them, and none for the default."""
    listed = [values] if isinstance(values, (int, torch.SymInt)) else list(values)
    listed = listed or list(default)
    return listed * count if len(listed) == 1 else listed


def least(a: Any, b: Any) -> Any:
    """min, without asking which it is where sizes are dynamic."""
    return torch.sym_min(a, b)


def laid_like(result: Tensor, x: Tensor) -> Tensor:
    """`result`, dense in the memory format of `x`, as results of poolings are."""
    return result.contiguous(memory_format=suggest_memory_format(x))


def pooled_size(size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    """How many windows there are along a dim (torch.nn.MaxPool2d has the formula)."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    # A window that would begin in the padding behind the end is none.
    return least((room + stride - 1) // stride, (size + padding - 1) // stride) + 1


def gathered(
    x: Tensor, starts: Sequence[Tensor], ends: Sequence[Tensor], widths: Sequence[Any], fill: float
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The windows [start, end) of the last dims, of at most `widths` places each.

    Args:
        starts, ends: for each pooled dim, [n], int64, inside of the dim.
        fill: the value of places outside of their window.

    Returns:
        values: [*batch, n_1, w_1, n_2, w_2, ...].
        inside: [n_1, w_1, n_2, w_2, ...], bool: which places are inside of their window.
        places: for each pooled dim, [n, w]: the place in `x`.
    """
    spatial = len(starts)
    places: list[Tensor] = []
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    values = x
    for d, (start, end, width) in enumerate(zip(starts, ends, widths, strict=True)):
        axis = x.dim() - spatial + d
        place = start[:, None] + torch.arange(width, device=x.device)
        tail = [1] * (2 * (spatial - 1 - d))
        inside = inside & (place < end[:, None]).view(*place.shape, *tail)
        # Outside of the window, but not outside of the tensor.
        last = torch.full((), x.shape[axis] - 1, device=x.device, dtype=place.dtype)
        place = torch.minimum(place, last)
        places.append(place)
        index: list[slice | Tensor] = [slice(None)] * (axis + d)
        values = values[(*index, place)]
    return torch.where(inside, values, torch.full((), fill, dtype=x.dtype, device=x.device)), inside, places


def window_dims(rank: int, spatial: int) -> list[int]:
    """The dims w_1, w_2, ... of what `gathered` returns for a tensor of `rank`."""
    return [rank - spatial + 2 * d + 1 for d in range(spatial)]


def greatest(values: Tensor, places: Sequence[Tensor], sizes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """The maximum of every window and its row-major place in the pooled dims, whose sizes are `sizes`.

    `values` and `places` are those of `gathered`. The first maximum counts, as it does in torch.
    """
    spatial = len(places)
    batch = values.dim() - 2 * spatial
    order = [*range(batch), *(batch + 2 * d for d in range(spatial)), *(batch + 2 * d + 1 for d in range(spatial))]
    best, which = values.permute(order).flatten(batch + spatial).max(-1)
    steps: list[Tensor] = []
    rest = which
    for place in reversed(places):
        steps.append(rest % place.shape[1])
        rest = rest // place.shape[1]
    index = torch.zeros_like(which)
    for d, step in enumerate(reversed(steps)):
        rows = torch.arange(places[d].shape[0], device=values.device).view(-1, *([1] * (spatial - 1 - d)))
        index = index * sizes[d] + places[d][rows.expand(which.shape), step]
    return best, index


def scattered(gradient: Tensor, indices: Tensor, x: Tensor, spatial: int) -> Tensor:
    """The gradient of a selection: added up at the row-major places `indices` of the last `spatial` dims of `x`."""
    batch = x.dim() - spatial
    flat = torch.zeros(x.shape, dtype=wide(x.dtype), device=x.device).flatten(batch)
    source = gradient.to(flat.dtype).flatten(batch)
    return flat.scatter_add(-1, indices.flatten(batch), source).view(x.shape).to(x.dtype)
