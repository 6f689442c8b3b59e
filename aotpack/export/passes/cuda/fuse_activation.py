"""Activations behind matrix products and convolutions become part of them."""

from __future__ import annotations

import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of
from aotpack.export.passes.patterns.activations import ACTIVATION_CALLS, activation_name


def fuse_activation(program: Program) -> Program:
    """Has our kernels apply an activation that is the only reader of their result."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import conv, gemm, int8_weight

    fusible = {each.OPERATOR: each.ACTIVATIONS for each in (gemm, conv, int8_weight)}
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*ACTIVATION_CALLS):
        name, product = activation_name(node), node.args[0]
        if name is None or not isinstance(product, torch.fx.Node) or product.target not in fusible:
            continue
        number, arguments = ops.ACTIVATIONS[name][0], bound_arguments(product)
        if number not in fusible[product.target] or arguments["activation"] != 0 or len(product.users) != 1:
            continue
        if dtype_of(node) != dtype_of(product):
            continue
        rewriter.report(node, f"{name} fused into {product.name}")
        product.args = tuple((arguments | {"activation": number}).values())
        rewriter.replace(node, product)
    return rewriter.finish("fuse-activation", f"fused {rewriter.changed} activations")
