"""Operators that read and write by index, sort and search."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import as_numbers
from aotpack.export.onnx.ops.elementwise import wide
from aotpack.export.onnx.ops.shapes import plain_numbers

Tensor = torch.Tensor


def _wrapped(indices: Tensor, size: Any) -> Tensor:
    """Indices from the front: ONNX counts negative ones from behind."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@operator("Gather")
def gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.dim()
    chosen = _wrapped(indices, x.shape[axis])
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return torch.nn.functional.embedding(chosen, x)
    if not indices.dim():
        return x.index_select(axis, chosen.reshape(1)).squeeze(axis)
    flat = x.index_select(axis, chosen.reshape(-1))
    return flat.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def gather_elements(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.dim()
    return torch.gather(x, axis, _wrapped(indices, x.shape[axis]))


@operator("GatherND")
def gather_nd(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    batch = node.get("batch_dims", 0)
    count = indices.shape[-1]
    places: list[Tensor] = []
    for axis in range(batch):
        shape = [1] * (indices.dim() - 1)
        shape[axis] = x.shape[axis]
        places.append(torch.arange(x.shape[axis]).reshape(shape))
    places += [_wrapped(indices[..., i], x.shape[batch + i]) for i in range(count)]
    return x[tuple(places)]


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter", "ScatterElements")
def scatter_elements(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.dim()
    places = _wrapped(indices, x.shape[axis])
    reduction = node.get("reduction", "none")
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, _REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_nd(node: Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    count = indices.shape[-1]
    places = tuple(_wrapped(indices[..., i], x.shape[i]) for i in range(count))
    reduction = node.get("reduction", "none")
    if reduction == "none":
        return x.index_put(places, updates)
    if reduction == "add":
        return x.index_put(places, updates, accumulate=True)
    # One index for each row of what the updates replace.
    row = math.prod(x.shape[count:])
    flat = torch.zeros_like(places[0])
    for place, size in zip(places, x.shape, strict=False):
        flat = flat * size + place
    where = flat.reshape(-1, 1).expand(flat.numel(), row)
    result = torch.scatter_reduce(
        x.reshape(-1, row), 0, where, updates.reshape(flat.numel(), row), _REDUCTIONS[reduction]
    )
    return result.reshape(x.shape)


@operator("OneHot", known=(1,))
def one_hot(node: Node, indices: Tensor, depth: Any, values: Tensor) -> Tensor:
    count = as_numbers(depth)[0]
    count = int(count) if isinstance(count, float) else count
    axis = node.get("axis", -1)
    axis = axis + indices.dim() + 1 if axis < 0 else axis
    places = indices.to(torch.int64)
    places = torch.where(places < 0, places + count, places).unsqueeze(axis)
    shape = [1] * (indices.dim() + 1)
    shape[axis] = -1
    return torch.where(places == torch.arange(count).reshape(shape), values[1], values[0])


@operator("Compress")
def compress(node: Node, x: Tensor, condition: Tensor) -> Tensor:
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, condition.nonzero().squeeze(1))


@operator("NonZero")
def non_zero(node: Node, x: Tensor) -> Tensor:
    if not x.dim():
        return x.reshape(1).nonzero().t()[:0]
    return x.nonzero().t()


@operator("TopK", known=(1,))
def top_k(node: Node, x: Tensor, k: Any = None) -> tuple[Tensor, Tensor]:
    count = node.get("k") if k is None else as_numbers(k)[0]
    axis = node.get("axis", -1)
    largest = bool(node.get("largest", 1))
    # Of equal elements, those with lower indices: topk does not say which.
    values, indices = torch.sort(wide(x), dim=axis, descending=largest, stable=True)
    values, indices = values.narrow(axis, 0, count), indices.narrow(axis, 0, count)
    return values.to(x.dtype), indices


@operator("ArgMax", "ArgMin")
def arg_extreme(node: Node, x: Tensor) -> Tensor:
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    function = torch.argmax if node.op == "ArgMax" else torch.argmin
    x = wide(x)
    if not node.get("select_last_index", 0):
        return function(x, dim=axis, keepdim=keep)
    return x.shape[axis] - 1 - function(x.flip(axis), dim=axis, keepdim=keep)


@operator("CumSum", known=(1,))
def cum_sum(node: Node, x: Tensor, axis: Any) -> Tensor:
    return _cumulative(node, x, axis, torch.cumsum, 0)


@operator("CumProd", known=(1,))
def cum_prod(node: Node, x: Tensor, axis: Any) -> Tensor:
    return _cumulative(node, x, axis, torch.cumprod, 1)


def _cumulative(node: Node, x: Tensor, axis: Any, function: Any, neutral: int) -> Tensor:
    place = int(plain_numbers(node, axis, "its axis is")[0]) % x.dim()
    dtype, reverse = x.dtype, bool(node.get("reverse", 0))
    y = wide(x)
    y = y.flip(place) if reverse else y
    if node.get("exclusive", 0):
        first = torch.full_like(y.narrow(place, 0, 1), neutral)
        y = torch.cat([first, y.narrow(place, 0, y.shape[place] - 1)], dim=place)
    y = function(y, dim=place, dtype=y.dtype)
    return (y.flip(place) if reverse else y).to(dtype)


@operator("Unique")
def unique(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    axis = node.get("axis")
    if node.get("sorted", 1):
        return _unique(x, axis)[:4]
    values, first, inverse, counts, _ = _unique(x, axis)
    order = torch.sort(first, stable=True).indices
    position = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0]))
    chosen = values.index_select(axis or 0, order)
    return chosen, first[order], position[inverse], counts[order]


def _unique(x: Tensor, axis: int | None) -> tuple[Tensor, ...]:
    if axis is None:
        values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True)
    else:
        values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    inverse = inverse.reshape(-1)
    # The first place of each: the least of those that have it.
    places = torch.arange(inverse.shape[0])
    first = torch.full_like(counts, torch.iinfo(torch.int64).max)
    first = first.scatter_reduce(0, inverse, places, "amin")
    return values, first, inverse, counts, places


@operator("ReverseSequence")
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    shape = [1] * x.dim()
    shape[time] = -1
    steps = torch.arange(x.shape[time]).reshape(shape)
    shape = [1] * x.dim()
    shape[batch] = -1
    ends = lengths.reshape(shape)
    places = torch.where(steps < ends, ends - 1 - steps, steps)
    return torch.gather(x, time, places.expand(x.shape))


@operator("TensorScatter")
def tensor_scatter(node: Node, cache: Tensor, update: Tensor, write: Tensor | None = None) -> Tensor:
    axis = node.get("axis", -2) % cache.dim()
    size, length = cache.shape[axis], update.shape[axis]
    start = torch.zeros(cache.shape[0], dtype=torch.int64) if write is None else write.to(torch.int64)
    places = start[:, None] + torch.arange(length)
    if node.get("mode", "linear") == "circular":
        places = places % size
    shape = [cache.shape[0]] + [1] * (cache.dim() - 1)
    shape[axis] = length
    return torch.scatter(cache, axis, places.reshape(shape).expand(update.shape), update)
