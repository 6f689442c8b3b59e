"""Gradients of convolutions' weights become calls of this project's kernels."""

from __future__ import annotations

import operator

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of
from aotpack.export.passes.patterns.convolution_backward import convolution_backward

aten = torch.ops.aten


def use_conv_weight_gradient(program: Program) -> Program:
    """Replaces gradients of weights by `aotpack::cuda_conv_weight_gradient`."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import conv, conv_backward

    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.convolution_backward.default):
        b = convolution_backward(node)
        if b is None or len({dtype_of(b.x), dtype_of(b.dy)}) != 1 or dtype_of(b.x) not in conv.DTYPES:
            continue
        sizes = shape_of(b.weight)
        if 0 in sizes or not all(isinstance(size, int) for size in sizes):
            continue
        rows, source = (b.x, b.dy) if b.transposed else (b.dy, b.x)
        arguments = (rows, source, b.kernel, b.stride, b.padding, b.dilation, b.groups)
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 1:
                rewriter.report(node, "gradient of a convolution's weight by our kernel")
                rewriter.replace(user, rewriter.call(conv_backward.OPERATOR, arguments, node))
    return rewriter.finish(
        "use-conv-weight-gradient", f"{rewriter.changed} gradients of convolutions' weights by our kernel"
    )
