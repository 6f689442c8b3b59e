"""Matrix products, convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import as_numbers
from aotpack.export.onnx.ops.elementwise import in_wide

Tensor = torch.Tensor
functional = torch.nn.functional


@operator("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return in_wide(torch.matmul, a, b)


@operator("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if node.get("transA", 0):
        a = a.t()
    if not node.get("transB", 0):
        b = b.t()
    if a.is_floating_point() and alpha == 1 and (c is None or (beta == 1 and c.dim() == 1)):
        return functional.linear(a, b, c)
    product = in_wide(lambda x, y: torch.matmul(x, y.t()), a, b)
    product = product if alpha == 1 else (product * alpha).to(a.dtype)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else (c * beta).to(a.dtype))


@operator("Einsum")
def einsum(node: Node, *inputs: Tensor) -> Tensor:
    return torch.einsum(node.require("equation"), *inputs)


@operator("Det")
def det(node: Node, x: Tensor) -> Tensor:
    return torch.linalg.det(x)


# ---- windows --------------------------------------------------------------------------------------------------------


class Window:
    """The windows of a convolution or pooling over the spatial axes of a tensor.

    Attributes:
        kernel, strides, dilations: per spatial axis.
        before, after: padding per spatial axis, possibly symbolic; with `ceil_mode`, `after` is what the file says.
    """

    def __init__(self, node: Node, x: Tensor, kernel: Sequence[Any]) -> None:
        rank = x.dim() - 2
        self.kernel = list(kernel)
        self.strides: list[int] = node.get("strides", [1] * rank)
        self.dilations: list[int] = node.get("dilations", [1] * rank)
        pads = node.get("pads", [0] * (2 * rank))
        self.before: list[Any] = list(pads[:rank])
        self.after: list[Any] = list(pads[rank:])
        mode = node.get("auto_pad", "NOTSET")
        if mode == "VALID":
            self.before, self.after = [0] * rank, [0] * rank
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            for i, size in enumerate(x.shape[2:]):
                out = (size + self.strides[i] - 1) // self.strides[i]
                reach = (self.kernel[i] - 1) * self.dilations[i] + 1
                total = torch.sym_max((out - 1) * self.strides[i] + reach - size, 0)
                less, more = total // 2, total - total // 2
                self.before[i], self.after[i] = (less, more) if mode == "SAME_UPPER" else (more, less)

    @property
    def is_even(self) -> bool:
        """Whether both sides are padded alike, by a number that is known."""
        return all(isinstance(b, int) and b == a for b, a in zip(self.before, self.after, strict=True))

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        if all(isinstance(p, int) and p == 0 for p in (*self.before, *self.after)):
            return x
        flat = [v for b, a in reversed(list(zip(self.before, self.after, strict=True))) for v in (b, a)]
        return functional.pad(x, flat, value=value)


_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@operator("Conv")
def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    window = Window(node, x, node.get("kernel_shape", list(weight.shape[2:])))
    rank = x.dim() - 2
    if rank not in _CONVOLUTIONS:
        raise node.error(f"convolutions over {rank} spatial axes are not supported")
    padding: Any = window.before if window.is_even else 0
    if not window.is_even:
        x = window.padded(x)
    return _CONVOLUTIONS[rank](x, weight, bias, window.strides, padding, window.dilations, node.get("group", 1))


_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = x.dim() - 2
    if rank not in _TRANSPOSED:
        raise node.error(f"convolutions over {rank} spatial axes are not supported")
    kernel = node.get("kernel_shape", list(weight.shape[2:]))
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    extra = node.get("output_padding", [0] * rank)
    pads = node.get("pads", [0] * (2 * rank))
    before, after = list(pads[:rank]), list(pads[rank:])
    wanted, mode = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    full = [(x.shape[2 + i] - 1) * strides[i] + extra[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    if mode in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = [x.shape[2 + i] * strides[i] for i in range(rank)]
    if wanted is not None:
        wanted = wanted[-rank:]
        for i in range(rank):
            total = torch.sym_max(full[i] - wanted[i], 0)
            less, more = total // 2, total - total // 2
            before[i], after[i] = (less, more) if mode == "SAME_UPPER" else (more, less)
            extra_size = wanted[i] - full[i]
            if isinstance(extra_size, int) and extra_size > 0:
                extra = [*extra[:i], extra[i] + extra_size, *extra[i + 1 :]]
                full[i] = wanted[i]
    elif mode == "VALID":
        before, after = [0] * rank, [0] * rank
    even = all(isinstance(b, int) and b == a for b, a in zip(before, after, strict=True))
    fits = all(e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True))
    group = node.get("group", 1)
    if even and fits:
        return _TRANSPOSED[rank](x, weight, bias, strides, before, extra, group, dilations)
    y = _TRANSPOSED[rank](x, weight, None, strides, 0, 0, group, dilations)
    grow = [v for e in reversed(extra) for v in (0, e)]
    y = functional.pad(y, grow) if any(grow) else y
    for i in range(rank):
        y = torch.narrow(y, 2 + i, before[i], full[i] - before[i] - after[i])
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


_MAX_POOLS: dict[int, Callable[..., Any]] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}


def _ceiled(node: Node, x: Tensor, window: Window) -> list[Any]:
    """Padding at the ends with which every window fits that rounding up adds."""
    if not node.get("ceil_mode", 0):
        return window.after
    after = []
    for i, size in enumerate(x.shape[2:]):
        reach = (window.kernel[i] - 1) * window.dilations[i] + 1
        room = size + window.before[i] + window.after[i] - reach
        stride = window.strides[i]
        count = (room + stride - 1) // stride + 1
        # A window that begins beyond the tensor and its padding in front is not one.
        if isinstance(count, int) and (count - 1) * stride >= size + window.before[i]:
            count -= 1
        after.append(window.after[i] + torch.sym_max((count - 1) * stride - room, 0))
    return after


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> Any:
    window = Window(node, x, node.require("kernel_shape"))
    rank = x.dim() - 2
    if rank not in _MAX_POOLS:
        raise node.error(f"pooling over {rank} spatial axes is not supported")
    window.after = _ceiled(node, x, window)
    dtype = x.dtype
    least = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
    y = x
    small = all(isinstance(b, int) and 2 * b <= k for b, k in zip(window.before, window.kernel, strict=True))
    padding: Any = window.before
    if not dtype.is_floating_point:
        # Bytes: kernels for floats find the same.
        y = x.to(torch.float32)
    if not (window.is_even and small):
        y = window.padded(y, least)
        padding = 0
    if not node.wants(1):
        return _MAX_POOLS[rank](y, window.kernel, window.strides, padding, window.dilations).to(dtype)
    return _with_indices(node, x, y, window, padding)


def _with_indices(node: Node, x: Tensor, y: Tensor, window: Window, padding: Any) -> Any:
    rank = x.dim() - 2
    values, indices = _MAX_POOLS[rank](y, window.kernel, window.strides, padding, window.dilations, return_indices=True)
    sizes, own = list(y.shape[2:]), list(x.shape[2:])
    places: list[Tensor] = []
    rest = indices
    for size in reversed(sizes):
        places.insert(0, rest % size)
        rest = torch.div(rest, size, rounding_mode="floor")
    if padding == 0:
        places = [p - b for p, b in zip(places, window.before, strict=True)]
    order = list(range(rank))
    if node.get("storage_order", 0):
        order = order[::-1]
    flat = torch.zeros_like(indices)
    for i in order:
        flat = flat * own[i] + places[i]
    n, c = x.shape[:2]
    image = torch.arange(n * c).reshape(n, c, *[1] * rank) * math.prod(own)
    return values.to(x.dtype), flat + image


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    window = Window(node, x, node.require("kernel_shape"))
    ends = list(window.after)
    window.after = _ceiled(node, x, window)
    include = bool(node.get("count_include_pad", 0))
    total = _window_sums(x, window, 0.0)
    ones = torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype)
    if include:
        # What rounding up adds beyond the padding does not count.
        counted = Window.__new__(Window)
        counted.__dict__.update(window.__dict__)
        counted.after = ends
        ones = counted.padded(ones, 1.0)
        rest = Window.__new__(Window)
        rest.__dict__.update(window.__dict__)
        rest.before = [0] * len(ends)
        rest.after = [a - e for a, e in zip(window.after, ends, strict=True)]
        return total / _window_sums(ones, rest, 0.0)
    if all(isinstance(p, int) and p == 0 for p in (*window.before, *window.after)):
        return total / math.prod(window.kernel)
    return total / _window_sums(ones, window, 0.0)


def _window_sums(x: Tensor, window: Window, value: float) -> Tensor:
    """The sum over each window."""
    y = window.padded(x, value)
    rank = x.dim() - 2
    if rank in (2, 3) and all(d == 1 for d in window.dilations):
        pool = functional.avg_pool2d if rank == 2 else functional.avg_pool3d
        return pool(y, window.kernel, window.strides, divisor_override=1)
    for i in range(rank):
        axis = 2 + i
        y = y.unfold(axis, (window.kernel[i] - 1) * window.dilations[i] + 1, window.strides[i])
        y = y[..., :: window.dilations[i]].sum(-1)
    return y


@operator("LpPool")
def lp_pool(node: Node, x: Tensor) -> Tensor:
    p = node.get("p", 2)
    window = Window(node, x, node.require("kernel_shape"))
    window.after = _ceiled(node, x, window)
    return torch.pow(_window_sums(torch.pow(x.abs(), p), window, 0.0), 1 / p)


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.dim())), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Tensor) -> Tensor:
    p = node.get("p", 2)
    return x.abs().pow(p).sum(list(range(2, x.dim())), keepdim=True).pow(1 / p)


@operator("MaxUnpool")
def max_unpool(node: Node, x: Tensor, indices: Tensor, shape: Tensor | None = None) -> Tensor:
    kernel = node.require("kernel_shape")
    rank = x.dim() - 2
    strides, pads = node.get("strides", [1] * rank), node.get("pads", [0] * (2 * rank))
    usual = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)]
    sizes = list(x.shape[:2]) + usual
    flat = torch.zeros([math.prod(sizes)], dtype=x.dtype)
    result = flat.scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(sizes)
    if shape is None:
        return result
    # Indices are those of the smaller tensor, which is at the front of the larger one.
    grow = [v for w, s in reversed(list(zip(as_numbers(shape), sizes, strict=True))) for v in (0, w - s)]
    return functional.pad(result, grow)
