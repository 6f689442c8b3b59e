"""Rewrites gradients that the backward of convolutions computes: those of weights, as products of matrices.

In the terms of `convolution_backward.py` the gradient of W[o, c, k] is the sum over images and i of
dy[o, i] x[c, i s + k d - p]: a product of dy with the patches of x that the outputs were computed from,
[outputs, images * i] times [images * i, k * c] (Chellapilla et al. 2006, "High performance convolutional neural
networks for document processing"). A convolution over x with dy as its weight, stride and dilation exchanged, is the
same sum; but its innermost loop runs over images, of which there are few, and with one channel a group 31 of 32 columns
of a packed dy would be zeros.

For a transposed convolution the gradient of W is the product of x with patches of dy.
"""

from __future__ import annotations

import operator

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, shape_of
from aotpack.export.passes.patterns.convolution_backward import ConvolutionBackward, convolution_backward, cut

aten = torch.ops.aten


def lower_convolution_weight_gradient(program: Program) -> Program:
    """Replaces gradients of weights by products of patches."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.convolution_backward.default):
        backward = convolution_backward(node)
        if backward is None:
            continue
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 1:
                rewriter.report(node, "gradient of the weight")
                rewriter.replace(user, _weight_gradient(rewriter, backward))
    return rewriter.finish(
        "lower-convolution-weight-gradient", f"rewrote {rewriter.changed} gradients of convolutions' weights"
    )


def _weight_gradient(rewriter: Rewriter, b: ConvolutionBackward) -> torch.fx.Node:
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


def _grouped(rewriter: Rewriter, b: ConvolutionBackward, value: torch.fx.Node) -> torch.fx.Node:
    """[n, g * c, ...] as [n, g, c, ...]."""
    return rewriter.call(aten.unflatten.int, (value, 1, [b.groups, shape_of(value)[1] // b.groups]), b.node)


def _patches(rewriter: Rewriter, b: ConvolutionBackward, source: torch.fx.Node, rows: torch.fx.Node) -> torch.fx.Node:
    """[n, c, *positions, *taps]: what the taps of the kernel see of `source` at each position of `rows`. A view."""
    if any(b.padding):
        pads = [pad for p in reversed(b.padding) for pad in (p, p)]
        source = rewriter.call(aten.constant_pad_nd.default, (source, pads), b.node)
    for axis in range(b.spatial):
        source = rewriter.call(aten.unfold.default, (source, 2 + axis, b.reach[axis] + 1, b.stride[axis]), b.node)
        if b.dilation[axis] > 1:
            taps = 2 + b.spatial + axis
            source = rewriter.call(aten.slice.Tensor, (source, taps, 0, b.reach[axis] + 1, b.dilation[axis]), b.node)
    return cut(rewriter, b, source, rows, 2)


def _depthwise_weight_gradient(
    rewriter: Rewriter, b: ConvolutionBackward, rows: torch.fx.Node, patches: torch.fx.Node
) -> torch.fx.Node:
    """With one channel a group there is nothing to share among products: a sum, into which patches are inlined."""
    for _ in range(b.spatial):
        rows = rewriter.call(aten.unsqueeze.default, (rows, -1), b.node)
    terms = rewriter.call(aten.mul.Tensor, (rows, patches), b.node)
    total = rewriter.call(aten.sum.dim_IntList, (terms, [0, *range(2, 2 + b.spatial)]), b.node)
    return rewriter.call(aten.unsqueeze.default, (total, 1), b.node)
