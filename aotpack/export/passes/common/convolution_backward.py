"""Rewrites gradients that the backward of convolutions computes: those of inputs and biases.

Along each spatial dim, with stride s, padding p and dilation d, y[o, i] is the sum over c and k of
W[o, c, k] x[c, i s + k d - p] (Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning",
chapter 4). That is linear in x:

- The gradient of x is the adjoint in x: the transposed convolution of the gradient of y, with the same stride,
  padding, dilation and groups. A transposed convolution holds its weight as [inputs, outputs / groups, k], which for
  the adjoint is W as it lies: a constant weight is packed for it like any other. Up to s - 1 positions at the end of x
  meet no output; the output padding gives them back, as zeros.
- The gradient of the bias is the sum of dy over images and positions.

For a transposed convolution x and y change roles: the gradient of x is a plain convolution with W.

The gradient of W remains a call of `aten::convolution_backward`: devices compute it in different ways.
"""

from __future__ import annotations

import operator

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, shape_of
from aotpack.export.passes.patterns.convolution_backward import ConvolutionBackward, convolution_backward, cut

aten = torch.ops.aten


def lower_convolution_backward(program: Program) -> Program:
    """Replaces gradients of inputs by convolutions, and those of biases by sums."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.convolution_backward.default):
        backward = convolution_backward(node)
        if backward is None:
            continue
        for user in list(node.users):
            if user.target is not operator.getitem or not user.users:
                continue
            if user.args[1] == 0:
                rewriter.report(node, "gradient of the input")
                rewriter.replace(user, _input_gradient(rewriter, backward))
            elif user.args[1] == 2:
                rewriter.report(node, "gradient of the bias")
                rewriter.replace(user, _bias_gradient(rewriter, backward))
        _keep_weight(node)
    return rewriter.finish("lower-convolution-backward", f"rewrote {rewriter.changed} gradients of convolutions")


def _keep_weight(node: torch.fx.Node) -> None:
    """Has a call compute the gradient of the weight alone; it goes if nothing reads that."""
    for user in list(node.users):
        if not user.users:
            node.graph.erase_node(user)
    if not node.users:
        node.graph.erase_node(node)
        return
    node.args = tuple((bound_arguments(node) | {"output_mask": [False, True, False]}).values())
    node.kwargs = {}
    node.meta["val"] = (None, node.meta["val"][1], None)


def _input_gradient(rewriter: Rewriter, b: ConvolutionBackward) -> torch.fx.Node:
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
    return cut(rewriter, b, gradient, b.x, 2)


def _convolve(
    rewriter: Rewriter,
    b: ConvolutionBackward,
    x: torch.fx.Node,
    weight: torch.fx.Node,
    stride: list[int],
    padding: list[int],
) -> torch.fx.Node:
    none = [0] * b.spatial
    return rewriter.call(
        aten.convolution.default, (x, weight, None, stride, padding, b.dilation, False, none, b.groups), b.node
    )


def _output_padding(b: ConvolutionBackward) -> list[int]:
    """What the positions of x without an output need; the most there can be where sizes are dynamic."""
    result = []
    for axis in range(b.spatial):
        size, count = shape_of(b.x)[2 + axis], shape_of(b.dy)[2 + axis]
        if isinstance(size, int) and isinstance(count, int):
            result.append(size - ((count - 1) * b.stride[axis] - 2 * b.padding[axis] + b.reach[axis] + 1))
        else:
            result.append(b.stride[axis] - 1)
    return result


def _depthwise_input_gradient(rewriter: Rewriter, b: ConvolutionBackward) -> torch.fx.Node:
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


def _bias_gradient(rewriter: Rewriter, b: ConvolutionBackward) -> torch.fx.Node:
    return rewriter.call(aten.sum.dim_IntList, (b.dy, [0, *range(2, 2 + b.spatial)]), b.node)
