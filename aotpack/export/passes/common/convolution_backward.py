"""Rewrites the backward of convolutions into convolutions and matrix products.

Along each spatial dim, with stride s, padding p and dilation d, y[o, i] is the sum over c and k of
W[o, c, k] x[c, i s + k d - p] (Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning",
chapter 4). That is linear in x and in W:

- The gradient of x is the adjoint in x: the transposed convolution of the gradient of y, with the same stride,
  padding, dilation and groups. A transposed convolution holds its weight as [inputs, outputs / groups, k], which for
  the adjoint is W as it lies: a constant weight is packed for it like any other. Up to s - 1 positions at the end of x
  meet no output; the output padding gives them back, as zeros.
- The gradient of W[o, c, k] is the sum over images and i of dy[o, i] x[c, i s + k d - p]: a product of dy with the
  patches of x that the outputs were computed from, [outputs, images * i] times [images * i, k * c] (Chellapilla et al.
  2006, "High performance convolutional neural networks for document processing"). A convolution over x with dy as its
  weight, stride and dilation exchanged, is the same sum; but its innermost loop runs over images, of which there are
  few, and with one channel a group 31 of 32 columns of a packed dy would be zeros.
- The gradient of the bias is the sum of dy over images and positions.

For a transposed convolution x and y change roles: the gradient of x is a plain convolution with W, and that of W is the
product of x with patches of dy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, shape_of
from aotpack.export.symbolic_shapes.dims import expression

aten = torch.ops.aten


@dataclass(frozen=True)
class _Backward:
    """One call: the gradient of y, x and W as nodes, and how y was computed; a number per spatial dim."""

    node: torch.fx.Node
    dy: torch.fx.Node
    x: torch.fx.Node
    weight: torch.fx.Node
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    groups: int

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def depthwise(self) -> bool:
        """One channel in and one out per group."""
        return bool(shape_of(self.weight)[1] == 1 and shape_of(self.weight)[0] == self.groups)

    @property
    def reach(self) -> list[int]:
        """Distance from the first to the last tap."""
        return [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]


def lower_convolution_backward(program: Program) -> Program:
    """Replaces each gradient that a backward of a convolution computes by operators with kernels of their own."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.convolution_backward.default):
        backward = _read(node)
        if backward is None:
            continue
        for user in list(node.users):
            if user.target is operator.getitem and user.users:
                rewriter.report(node, f"gradient of the {_NAMES[int(user.args[1])]}")  # type: ignore[arg-type]
                rewriter.replace(user, _GRADIENTS[int(user.args[1])](rewriter, backward))  # type: ignore[arg-type]
        if not any(user.users for user in node.users):
            for user in list(node.users):
                rewriter.graph.erase_node(user)
            rewriter.graph.erase_node(node)
    return rewriter.finish("lower-convolution-backward", f"rewrote {rewriter.changed} gradients of convolutions")


def _read(node: torch.fx.Node) -> _Backward | None:
    arguments = bound_arguments(node)
    weight = arguments["weight"]
    kernel = list(shape_of(weight)[2:])
    spatial = len(kernel)
    numbers = {name: _spread(arguments[name], spatial) for name in ("stride", "padding", "dilation")}
    constants = [*kernel, *(number for values in numbers.values() for number in values)]
    if spatial not in (1, 2, 3) or not all(isinstance(number, int) for number in constants):
        return None
    return _Backward(
        node,
        arguments["grad_output"],
        arguments["input"],
        weight,
        kernel,
        numbers["stride"],
        numbers["padding"],
        numbers["dilation"],
        arguments["transposed"],
        arguments["groups"],
    )


def _spread(values: list[Any], count: int) -> list[Any]:
    return list(values) * count if len(values) == 1 else list(values)


# ---- of the input ---------------------------------------------------------------------------------------------------


def _input_gradient(rewriter: Rewriter, b: _Backward) -> torch.fx.Node:
    if b.transposed:
        gradient = _convolve(rewriter, b, b.dy, b.weight, b.stride, b.padding)
    elif b.depthwise and all(p <= r for p, r in zip(b.padding, b.reach, strict=True)):
        gradient = _depthwise_input_gradient(rewriter, b)
    else:
        gradient = rewriter.call(
            aten.convolution.default,
            (b.dy, b.weight, None, b.stride, b.padding, b.dilation, True, _output_padding(b), b.groups),
            b.node,
        )
    return _cut(rewriter, b, gradient, b.x, 2)


def _convolve(
    rewriter: Rewriter, b: _Backward, x: torch.fx.Node, weight: torch.fx.Node, stride: list[int], padding: list[int]
) -> torch.fx.Node:
    none = [0] * b.spatial
    return rewriter.call(
        aten.convolution.default, (x, weight, None, stride, padding, b.dilation, False, none, b.groups), b.node
    )


def _output_padding(b: _Backward) -> list[int]:
    """What the positions of x without an output need; the most there can be where sizes are dynamic."""
    result = []
    for axis in range(b.spatial):
        size, count = shape_of(b.x)[2 + axis], shape_of(b.dy)[2 + axis]
        if isinstance(size, int) and isinstance(count, int):
            result.append(size - ((count - 1) * b.stride[axis] - 2 * b.padding[axis] + b.reach[axis] + 1))
        else:
            result.append(b.stride[axis] - 1)
    return result


def _depthwise_input_gradient(rewriter: Rewriter, b: _Backward) -> torch.fx.Node:
    """A plain convolution with the kernel reversed, over dy with stride - 1 zeros after each position.

    Kernels for one channel per group exist for plain convolutions only; a transposed one would be computed with each
    channel padded to a panel of 32.
    """
    dy = b.dy
    if any(s > 1 for s in b.stride):
        # [n, c, i, j] → [n, c, i, 1, j, 1] → [n, c, i, s, j, s] → [n, c, i s, j s]
        for axis in range(b.spatial):
            dy = rewriter.call(aten.unsqueeze.default, (dy, 3 + 2 * axis), b.node)
        pads = [pad for s in reversed(b.stride) for pad in (0, s - 1, 0, 0)]
        dy = rewriter.call(aten.constant_pad_nd.default, (dy, pads[:-2]), b.node)
        for axis in range(b.spatial):
            dy = rewriter.call(aten.flatten.using_ints, (dy, 2 + axis, 3 + axis), b.node)
    if rewriter.constant(b.weight) is not None:
        reverse = rewriter.derive(f"{b.weight.target}_reversed", "folded", _reversed, (b.weight,), b.node)
    else:
        reverse = rewriter.call(aten.flip.default, (b.weight, list(range(2, 2 + b.spatial))), b.node)
    padding = [r - p for r, p in zip(b.reach, b.padding, strict=True)]
    return _convolve(rewriter, b, dy, reverse, [1] * b.spatial, padding)


def _reversed(weight: torch.Tensor) -> torch.Tensor:
    return weight.flip(list(range(2, weight.dim())))


def _cut(rewriter: Rewriter, b: _Backward, value: torch.fx.Node, like: torch.fx.Node, first: int) -> torch.fx.Node:
    """`value` without what its spatial dims, from `first` on, have beyond those of `like`."""
    for axis in range(b.spatial):
        size = shape_of(like)[2 + axis]
        if expression(shape_of(value)[first + axis]) == expression(size):
            continue
        end = size if isinstance(size, int) else rewriter.call(aten.sym_size.int, (like, 2 + axis), b.node)
        value = rewriter.call(aten.slice.Tensor, (value, first + axis, 0, end), b.node)
    return value


# ---- of the weight --------------------------------------------------------------------------------------------------


def _weight_gradient(rewriter: Rewriter, b: _Backward) -> torch.fx.Node:
    rows, source = (b.x, b.dy) if b.transposed else (b.dy, b.x)
    patches = _patches(rewriter, b, source, rows)
    if b.depthwise:
        return _depthwise_weight_gradient(rewriter, b, rows, patches)
    # Positions become the depth of a product per group: rows [g, n * positions, r], patches [g, n * positions, k * c].
    # Channels lie innermost, as they do in activations.
    positions, taps = range(3, 3 + b.spatial), range(3 + b.spatial, 3 + 2 * b.spatial)
    rows = _grouped(rewriter, b, rows)
    rows = rewriter.call(aten.permute.default, (rows, [1, 0, *positions, 2]), b.node)
    rows = rewriter.call(aten.flatten.using_ints, (rows, 1, 1 + b.spatial), b.node)
    patches = _grouped(rewriter, b, patches)
    patches = rewriter.call(aten.permute.default, (patches, [1, 0, *positions, *taps, 2]), b.node)
    patches = rewriter.call(aten.flatten.using_ints, (patches, 2 + b.spatial, 2 + 2 * b.spatial), b.node)
    patches = rewriter.call(aten.flatten.using_ints, (patches, 1, 1 + b.spatial), b.node)
    if b.groups == 1:
        rows = rewriter.call(aten.squeeze.dim, (rows, 0), b.node)
        patches = rewriter.call(aten.squeeze.dim, (patches, 0), b.node)
        product = rewriter.call(aten.mm.default, (rewriter.call(aten.t.default, (rows,), b.node), patches), b.node)
    else:
        columns = rewriter.call(aten.transpose.int, (rows, 1, 2), b.node)
        product = rewriter.call(aten.bmm.default, (columns, patches), b.node)
    sizes = shape_of(b.weight)
    gradient = rewriter.call(aten.reshape.default, (product, [sizes[0], *b.kernel, sizes[1]]), b.node)
    return rewriter.call(aten.permute.default, (gradient, [0, 1 + b.spatial, *range(1, 1 + b.spatial)]), b.node)


def _grouped(rewriter: Rewriter, b: _Backward, value: torch.fx.Node) -> torch.fx.Node:
    """[n, g * c, ...] as [n, g, c, ...]."""
    return rewriter.call(aten.unflatten.int, (value, 1, [b.groups, shape_of(value)[1] // b.groups]), b.node)


def _patches(rewriter: Rewriter, b: _Backward, source: torch.fx.Node, rows: torch.fx.Node) -> torch.fx.Node:
    """[n, c, *positions, *taps]: what the taps of the kernel see of `source` at each position of `rows`. A view."""
    if any(b.padding):
        pads = [pad for p in reversed(b.padding) for pad in (p, p)]
        source = rewriter.call(aten.constant_pad_nd.default, (source, pads), b.node)
    for axis in range(b.spatial):
        source = rewriter.call(aten.unfold.default, (source, 2 + axis, b.reach[axis] + 1, b.stride[axis]), b.node)
        if b.dilation[axis] > 1:
            taps = 2 + b.spatial + axis
            source = rewriter.call(aten.slice.Tensor, (source, taps, 0, b.reach[axis] + 1, b.dilation[axis]), b.node)
    return _cut(rewriter, b, source, rows, 2)


def _depthwise_weight_gradient(
    rewriter: Rewriter, b: _Backward, rows: torch.fx.Node, patches: torch.fx.Node
) -> torch.fx.Node:
    """With one channel a group there is nothing to share among products: a sum, into which patches are inlined."""
    for _ in range(b.spatial):
        rows = rewriter.call(aten.unsqueeze.default, (rows, -1), b.node)
    terms = rewriter.call(aten.mul.Tensor, (rows, patches), b.node)
    total = rewriter.call(aten.sum.dim_IntList, (terms, [0, *range(2, 2 + b.spatial)]), b.node)
    return rewriter.call(aten.unsqueeze.default, (total, 1), b.node)


# ---- of the bias ----------------------------------------------------------------------------------------------------


def _bias_gradient(rewriter: Rewriter, b: _Backward) -> torch.fx.Node:
    return rewriter.call(aten.sum.dim_IntList, (b.dy, [0, *range(2, 2 + b.spatial)]), b.node)


_NAMES = ("input", "weight", "bias")
_GRADIENTS: tuple[Callable[[Rewriter, _Backward], torch.fx.Node], ...] = (
    _input_gradient,
    _weight_gradient,
    _bias_gradient,
)
