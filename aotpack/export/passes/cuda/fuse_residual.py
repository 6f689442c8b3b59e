"""Additions behind convolutions become part of them."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, same_shape

aten = torch.ops.aten


def fuse_residual(program: Program) -> Program:
    """Has our kernels add a tensor of the shape of their result, where the sum is the only reader of the result.

    Products of linear layers are left alone: TorchInductor fuses what is added to them with the norm behind it.
    """
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import conv

    def open_(node: Any) -> TypeGuard[torch.fx.Node]:
        if not isinstance(node, torch.fx.Node) or node.target is not conv.OPERATOR or len(node.users) != 1:
            return False
        arguments = bound_arguments(node)
        return arguments["activation"] == 0 and arguments["residual"] is None

    rewriter = Rewriter(program)
    order = {node: position for position, node in enumerate(rewriter.graph.nodes)}
    for node in rewriter.nodes(aten.add.Tensor):
        pairs = [(node.args[0], node.args[1]), (node.args[1], node.args[0])]
        # The later one of two convolutions gets the other's result: its inputs are there then.
        pairs.sort(key=lambda pair: -order.get(pair[0], -1) if isinstance(pair[0], torch.fx.Node) else 1)
        for source, other in pairs:
            if bound_arguments(node)["alpha"] != 1 or not open_(source) or source is other or not _fits(source, other):
                continue
            rewriter.report(node, f"addition fused into {source.name}")
            # What it reads is there at the addition.
            node.prepend(source)
            source.args = tuple((bound_arguments(source) | {"residual": other}).values())
            source.kwargs = {}
            rewriter.replace(node, source)
            break
    return rewriter.finish("fuse-residual", f"fused {rewriter.changed} additions")


def _fits(source: torch.fx.Node, other: Any) -> bool:
    if not isinstance(other, torch.fx.Node) or not isinstance(other.meta.get("val"), torch.Tensor):
        return False
    return same_shape(source, other) and dtype_of(source) == dtype_of(other)
