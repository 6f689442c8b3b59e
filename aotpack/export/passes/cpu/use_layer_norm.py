"""Layer norms between kernels of our own, which TorchInductor has nothing to fuse with, are one of those as well.

For each it would plan, fuse and generate five loops. Where an addition or another loop comes before or after, it makes
one loop of both, which is then the better way.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of
from aotpack.export.passes.patterns.moves import VIEWS

aten = torch.ops.aten


def use_layer_norm(program: Program) -> Program:
    """Replaces layer norms of rows by `aotpack::layer_norm` where what is around them is no loop."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.layer_norm.default):
        arguments = bound_arguments(node)
        if _fits(arguments) and _is_no_loop(arguments["input"]) and _is_read_by_kernels(node):
            x, weight, bias = (arguments[name] for name in ("input", "weight", "bias"))
            rewriter.report(node, "norm of rows")
            rewriter.replace(node, rewriter.call(ops.layer_norm, (x, weight, bias, arguments["eps"]), node))
    return rewriter.finish("use-layer-norm", f"found {rewriter.changed} layer norms between kernels")


def _fits(arguments: dict[str, Any]) -> bool:
    tensors = [arguments[name] for name in ("input", "weight", "bias") if arguments[name] is not None]
    alike = all(dtype_of(tensor) == dtype_of(tensors[0]) for tensor in tensors)
    return len(arguments["normalized_shape"]) == 1 and alike and dtype_of(tensors[0]) in ops.KERNEL_DTYPES


def _is_no_loop(node: torch.fx.Node) -> bool:
    """Whether a value is an input, or what one of our kernels wrote."""
    while node.target in VIEWS or node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node.op != "call_function" or _is_kernel(node)


def _is_read_by_kernels(node: torch.fx.Node) -> bool:
    return all(
        user.op == "output" or _is_kernel(user) or (user.target in VIEWS and _is_read_by_kernels(user))
        for user in node.users
    )


def _is_kernel(node: torch.fx.Node) -> bool:
    return node.target in ops.C_SHIMS
