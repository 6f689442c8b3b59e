"""Operators that move elements without looking at them, and constants."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import NotConstantError
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known, as_numbers, as_tensor

Tensor = torch.Tensor


def axes_of(node: Node, given: Any) -> list[int] | None:
    """Axes, from an input or from the attribute `axes`; None where there are none.

    Raises:
        NotConstantError: they are computed in the call.
    """
    if given is None:
        found = node.get("axes")
        return None if found is None else [int(a) for a in found]
    return [int(a) for a in plain_numbers(node, given, "its axes are")]


def plain_numbers(node: Node, given: Any, what: str) -> list[Any]:
    """The elements of an input that has to be known when the archive is built.

    Raises:
        NotConstantError: they are computed in the call.
    """
    if isinstance(given, Known) and given.is_plain():
        return given.flat()
    raise NotConstantError(
        f"node {node.title}: {what} not constants of the model",
        hint="if they are an input, pass its value to the build: from_onnx(…, constants={name: value}), or --constant "
        "NAME=VALUE",
    )


@operator("ConstantOfShape", known=(0,))
def constant_of_shape(node: Node, shape: Any) -> Tensor:
    value = node.get("value")
    if value is None:
        return torch.zeros(as_numbers(shape), dtype=torch.float32)
    return torch.full(as_numbers(shape), value.item(), dtype=value.dtype)


@operator("Reshape", known=(1,))
def reshape(node: Node, x: Tensor, shape: Any = None) -> Tensor:
    if isinstance(shape, Tensor):
        return x.reshape(_sizes_of_the_call(node, x, shape))
    sizes = node.get("shape") if shape is None else shape.flat()
    if not node.get("allowzero", 0):
        sizes = [x.shape[i] if isinstance(s, int) and s == 0 else s for i, s in enumerate(sizes)]
    return x.reshape(sizes)


def _sizes_of_the_call(node: Node, x: Tensor, shape: Tensor) -> list[Any]:
    """Sizes that are read in the call; which of them are 0 or -1 is not known before."""
    sizes = shape.to(torch.int64)
    count = shape.shape[0]
    if not node.get("allowzero", 0):
        own = torch.stack([torch.scalar_tensor(s, dtype=torch.int64) for s in (*x.shape, *[0] * count)][:count])
        sizes = torch.where(sizes == 0, own, sizes)
    rest = torch.where(sizes == -1, 1, sizes).prod()
    free = torch.scalar_tensor(math.prod(x.shape), dtype=torch.int64) // rest.clamp(min=1)
    numbers = as_numbers(torch.where(sizes == -1, free, sizes))
    for number in numbers:
        torch._check(number >= 0)
    return numbers


@operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Unsqueeze", known=(1,))
def unsqueeze(node: Node, x: Tensor, axes: Any = None) -> Tensor:
    wanted = axes_of(node, axes) or []
    rank = x.dim() + len(wanted)
    for axis in sorted(a % rank for a in wanted):
        x = x.unsqueeze(axis)
    return x


@operator("Squeeze", known=(1,))
def squeeze(node: Node, x: Tensor, axes: Any = None) -> Tensor:
    wanted = axes_of(node, axes)
    if wanted is None:
        wanted = [i for i, size in enumerate(x.shape) if isinstance(size, int) and size == 1]
    places = {a % x.dim() for a in wanted} if x.dim() else set()
    for axis in places:
        torch._check(x.shape[axis] == 1)
    return x.reshape([size for i, size in enumerate(x.shape) if i not in places])


@operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    return x.permute(node.get("perm", list(range(x.dim()))[::-1]))


@operator("Concat")
def concat(node: Node, *inputs: Tensor) -> Tensor:
    return torch.cat(inputs, dim=node.get("axis", 1))


@operator("Split", known=(1,))
def split(node: Node, x: Tensor, sizes: Any = None) -> tuple[Tensor, ...]:
    axis = node.get("axis", 0)
    given = node.get("split") if sizes is None else as_numbers(sizes)
    if given is not None:
        return torch.split(x, given, dim=axis)
    count = len(node.outputs)
    each = (x.shape[axis] + count - 1) // count
    return torch.split(x, [each] * (count - 1) + [x.shape[axis] - each * (count - 1)], dim=axis)


@operator("Expand", known=(1,))
def expand(node: Node, x: Tensor, shape: Any) -> Tensor:
    sizes = as_numbers(shape)
    rank = max(len(sizes), x.dim())
    sizes = [1] * (rank - len(sizes)) + sizes
    own = [1] * (rank - x.dim()) + list(x.shape)
    # Where the shape says 1, the tensor has its own size. A size of the tensor that is not 1 leaves no choice.
    wanted = [
        a if (isinstance(s, int) and s == 1) or (isinstance(a, int) and a != 1 and not isinstance(s, int)) else s
        for a, s in zip(own, sizes, strict=True)
    ]
    if isinstance(shape, Tensor):
        return x.expand(wanted)
    return torch.broadcast_to(x, torch.broadcast_shapes(tuple(own), tuple(wanted)))


@operator("Tile", known=(1,))
def tile(node: Node, x: Tensor, repeats: Any) -> Tensor:
    return x.repeat(as_numbers(repeats))


@operator("Range", known=(0, 1, 2))
def range_(node: Node, start: Any, limit: Any, delta: Any) -> Tensor:
    dtype = start.dtype
    if all(isinstance(v, Known) for v in (start, limit, delta)):
        first, last, step = (v.flat()[0] for v in (start, limit, delta))
        return torch.arange(first, last, step, dtype=dtype)
    first, last, step = (as_tensor(v).reshape([]) for v in (start, limit, delta))
    exact = torch.float64 if dtype.is_floating_point else torch.int64
    distance, stride = last.to(exact) - first.to(exact), step.to(exact)
    count = torch.ceil(distance / stride) if dtype.is_floating_point else -(-distance // stride)
    number = count.clamp(min=0).to(torch.int64).item()
    torch._check(number >= 0)
    return (first.to(exact) + torch.arange(number) * stride).to(dtype)


@operator("Slice")
def slice_by_attributes(node: Node, x: Tensor) -> Tensor:
    return _sliced(x, node.require("starts"), node.require("ends"), node.get("axes"), None)


@operator("Slice", since=10, known=(1, 2, 3, 4))
def slice_(node: Node, x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    wanted = None if axes is None else axes_of(node, axes)
    strides = None if steps is None else plain_numbers(node, steps, "its steps are")
    if isinstance(starts, Tensor) or isinstance(ends, Tensor):
        return _sliced_by_tensors(x, as_tensor(starts), as_tensor(ends), wanted, strides)
    return _sliced(x, starts.flat(), ends.flat(), wanted, strides)


def _sliced(x: Tensor, starts: Any, ends: Any, axes: Any, steps: Any) -> Tensor:
    for i, axis in enumerate(axes if axes is not None else range(len(starts))):
        axis = axis % x.dim()
        step = int(steps[i]) if steps else 1
        start, end, size = starts[i], ends[i], x.shape[axis]
        if step > 0:
            x = torch.ops.aten.slice.Tensor(x, axis, start, end, step)
            continue
        # torch has no negative steps: the elements from behind, turned.
        # Numbers that mean "from the end" and "to the beginning" stay out of conditions on the size.
        first = size - 1 if _far(start) else torch.sym_min(start + size if _negative(start) else start, size - 1)
        last = -1 if _far(-end) else torch.sym_max(end + size if _negative(end) else end, -1)
        x = torch.ops.aten.slice.Tensor(x.flip(axis), axis, size - 1 - first, size - 1 - last, -step)
    return x


def _sliced_by_tensors(x: Tensor, starts: Tensor, ends: Tensor, axes: Any, steps: Any) -> Tensor:
    """Slices that are read in the call. They are copies: offsets of views of views would be data-dependent."""
    for i, axis in enumerate(axes if axes is not None else range(starts.shape[0])):
        axis = axis % x.dim()
        size, step = x.shape[axis], int(steps[i]) if steps else 1
        start, end = (torch.where(v < 0, v + size, v) for v in (starts[i].to(torch.int64), ends[i].to(torch.int64)))
        if step > 0:
            start, end = start.clamp(0, size), end.clamp(0, size)
            count = torch.div(end - start + step - 1, step, rounding_mode="floor")
        else:
            start, end = start.clamp(0, size - 1), end.clamp(-1, size - 1)
            count = torch.div(start - end - step - 1, -step, rounding_mode="floor")
        number = count.clamp(min=0).item()
        torch._check(number >= 0)
        x = x.index_select(axis, start + torch.arange(number) * step)
    return x


def _negative(value: Any) -> bool:
    return isinstance(value, int) and value < 0


def _far(value: Any) -> bool:
    """Whether it is beyond the end of any tensor."""
    return isinstance(value, int) and value >= 2**31


@operator("Trilu", known=(1,))
def trilu(node: Node, x: Tensor, k: Any = None) -> Tensor:
    diagonal = 0 if k is None else as_numbers(k)[0]
    return (torch.triu if node.get("upper", 1) else torch.tril)(x, diagonal)


@operator("Pad", known=(1, 2, 3))
def pad(node: Node, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    amounts = node.get("pads", node.get("paddings")) if pads is None else as_numbers(pads)
    filler = value if isinstance(value, Tensor) else None
    number: Any = node.get("value", 0.0) if value is None or filler is not None else value.flat()[0]
    places = axes_of(node, axes) if axes is not None else None
    chosen = list(range(x.dim())) if places is None else [a % x.dim() for a in places]
    half = len(amounts) // 2
    before = dict(zip(chosen, amounts[:half], strict=True))
    after = dict(zip(chosen, amounts[half:], strict=True))
    mode = node.get("mode", "constant")
    if mode == "constant":
        flat = [v for axis in reversed(range(x.dim())) for v in (before.get(axis, 0), after.get(axis, 0))]
        if filler is None:
            return torch.nn.functional.pad(x, flat, value=number)
        inside = torch.nn.functional.pad(torch.ones_like(x, dtype=torch.bool), flat, value=False)
        return torch.where(inside, torch.nn.functional.pad(x, flat), filler.reshape([]))
    for axis in chosen:
        x = _padded(x, axis, before[axis], after[axis], mode)
    return x


def _padded(x: Tensor, axis: int, before: Any, after: Any, mode: str) -> Tensor:
    """One axis, by the elements that the mode repeats."""
    size = x.shape[axis]
    for amount in (before, after):
        if isinstance(amount, int) and amount < 0:
            start, end = max(-before, 0), size - max(-after, 0)
            x = x.narrow(axis, start, end - start)
            size, before, after = x.shape[axis], max(before, 0), max(after, 0)
            break
    places = torch.arange(-before, size + after)
    match mode:
        case "edge":
            places = places.clamp(0, size - 1)
        case "wrap":
            places = places % size
        case "reflect":
            period = torch.sym_max(2 * (size - 1), 1)
            places = places.abs() % period
            places = torch.where(places >= size, period - places, places)
        case _:
            raise ValueError(f"the mode {mode!r} is unknown")
    return x.index_select(axis, places)


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    block = node.require("blocksize")
    n, c, h, w = x.shape
    if node.get("mode", "DCR") == "DCR":
        y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // block**2, h * block, w * block)


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    block = node.require("blocksize")
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // block, block, w // block, block)
    # `mode` came with an opset that has both orders.
    order = (0, 1, 3, 5, 2, 4) if node.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return y.permute(order).reshape(n, c * block**2, h // block, w // block)


@operator("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    dtype = dtypes.torch_dtype(node.get("dtype")) if "dtype" in node.attributes else x.dtype
    rows, columns, k = x.shape[0], x.shape[1], node.get("k", 0)
    return (torch.arange(rows)[:, None] + k == torch.arange(columns)[None, :]).to(dtype)


@operator("BitCast")
def bit_cast(node: Node, x: Tensor) -> Tensor:
    return x.view(dtypes.torch_dtype(node.require("to")))
