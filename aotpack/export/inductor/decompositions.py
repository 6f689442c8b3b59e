"""Decompositions that TorchInductor gets from us: operators that it has no code for, or has for fixed sizes alone.

All of them are exact, work for any size (0 where the operator does), and are made of operators that do. Where sizes are
fixed and TorchInductor has code of its own, that is left to it.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.compile_fx.select_decomp_table   its table is what AOTAutograd decomposes by
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor

aten = torch.ops.aten

_TABLE: dict[Any, Callable[..., Any]] = {}


def _decomposes(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _TABLE.update(dict.fromkeys(operators, function))
        return function

    return register


@contextlib.contextmanager
def our_decompositions() -> Iterator[None]:
    """While active, TorchInductor decomposes by our table too."""
    from torch._inductor import compile_fx

    original: Any = compile_fx.select_decomp_table  # type: ignore[attr-defined]

    @functools.wraps(original)
    def select() -> dict[Any, Any]:
        table = original()
        return {**table, **{op: _else(function, table.get(op)) for op, function in _TABLE.items()}}

    with mock.patch.object(compile_fx, "select_decomp_table", select):
        yield


def _else(function: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    @functools.wraps(function)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return other(*args, **kwargs) if result is NotImplemented and other is not None else result

    return decompose


def _fixed(*sizes: Any) -> bool:
    return not any(isinstance(size, torch.SymInt) for size in sizes)


# ---- activations and products ---------------------------------------------------------------------------------------


@_decomposes(aten.glu.default)
def _glu(x: Tensor, dim: int = -1) -> Any:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid()


@_decomposes(aten._trilinear.default)
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


# ---- reductions of nothing ------------------------------------------------------------------------------------------


@_decomposes(aten.var_mean.correction)
def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    # TorchInductor computes both at once and gives 0 for the mean of nothing, which is NaN.
    axes = range(x.dim()) if dim is None else dim
    if _fixed(*(x.shape[axis] for axis in axes)):
        return NotImplemented
    mean = x.mean(list(axes), keepdim=keepdim)
    return aten.var.correction(x, dim, correction=correction, keepdim=keepdim), mean


# ---- adaptive pooling -----------------------------------------------------------------------------------------------


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


@_decomposes(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def _adaptive_avg_pool(x: Tensor, output_size: Sequence[Any]) -> Any:
    if len(output_size) == 2 and _fixed(*x.shape[-2:]):
        return NotImplemented
    values, inside, _ = _windows(x, output_size, 0.0)
    wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    total = values.to(wide).sum(_pooled_axes(x, len(output_size)))
    count = inside.sum([2 * d + 1 for d in range(len(output_size))])
    return (total / count).to(x.dtype)


@_decomposes(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(x: Tensor, output_size: Sequence[Any]) -> Any:
    spatial = len(output_size)
    if spatial == 2 and _fixed(*x.shape[-2:]):
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


# ---- order statistics -----------------------------------------------------------------------------------------------


def _median_at(x: Tensor, dim: int, keepdim: bool, *, ignore_nan: bool) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    values, places = x.sort(dim=dim, stable=True)
    size = x.shape[dim]
    middle = torch.full((), size - 1, dtype=torch.int64, device=x.device) // 2
    shape = [1 if axis == dim % x.dim() else n for axis, n in enumerate(x.shape)]
    middle = middle.expand(shape)
    if x.is_floating_point():
        # NaN sorts last. One makes the median NaN, at its first place; the other median takes those before it.
        missing = x.isnan().sum(dim, keepdim=True)
        if ignore_nan:
            middle = ((size - missing - 1) // 2).clamp(min=0)
        else:
            middle = torch.where(missing > 0, size - missing, middle)
    value, place = values.gather(dim, middle), places.gather(dim, middle)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


@_decomposes(aten.median.dim)
def _median_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median_at(x, dim, keepdim, ignore_nan=False)


@_decomposes(aten.nanmedian.dim)
def _nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return _median_at(x, dim, keepdim, ignore_nan=True)


@_decomposes(aten.median.default)
def _median(x: Tensor) -> Any:
    return _median_at(x.flatten(), 0, False, ignore_nan=False)[0]


@_decomposes(aten.nanmedian.default)
def _nanmedian(x: Tensor) -> Any:
    return _median_at(x.flatten(), 0, False, ignore_nan=True)[0]


# ---- sizes out of data ----------------------------------------------------------------------------------------------


def _runs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The runs of equal values in a tensor of rank 1: where they start, the run of each element, their lengths."""
    before = x.new_ones(x.shape, dtype=torch.bool)
    before = before.slice_scatter(x[1:] != x[:-1], 0, 1)
    starts = before.nonzero().squeeze(1)
    run = before.cumsum(0) - 1
    ends = torch.cat([starts[1:], torch.full((1,), x.shape[0], device=x.device)])[: starts.shape[0]]
    return starts, run, ends - starts


@_decomposes(aten.unique_consecutive.default)
def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None:
        return NotImplemented
    starts, run, counts = _runs(x.flatten())
    inverse = run.view(x.shape) if return_inverse else x.new_empty(0, dtype=torch.int64)
    return x.flatten()[starts], inverse, counts if return_counts else x.new_empty(0, dtype=torch.int64)


@_decomposes(aten._unique2.default)
def _unique2(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    values, places = x.flatten().sort(stable=True)
    starts, run, counts = _runs(values)
    inverse = x.new_empty(0, dtype=torch.int64)
    if return_inverse:
        inverse = torch.empty_like(places).scatter(0, places, run).view(x.shape)
    return values[starts], inverse, counts if return_counts else x.new_empty(0, dtype=torch.int64)
