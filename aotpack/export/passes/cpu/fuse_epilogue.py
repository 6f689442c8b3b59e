"""Fuses a residual add and an activation behind a packed linear or convolution into it."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, same_shape
from aotpack.export.passes.patterns.activations import ACTIVATION_CALLS, activation_name

aten = torch.ops.aten

_PACKED = (ops.packed_linear, ops.packed_conv, ops.quantized_linear)
_ROWS = (ops.packed_linear, ops.quantized_linear)
_NAMES = {number: name for name, (number, _) in ops.ACTIVATIONS.items()}


def fuse_epilogue(program: Program) -> Program:
    """First additions, then activations; each only where the packed result has no other reader."""
    rewriter = Rewriter(program)
    order = {node: position for position, node in enumerate(rewriter.graph.nodes)}
    adds = activations = 0
    for node in rewriter.nodes(aten.add.Tensor):
        adds += _fuse_add(rewriter, node, order)
    for node in rewriter.nodes(*ACTIVATION_CALLS):
        activations += _fuse_activation(node, rewriter)
    rewriter.changed = adds + activations
    return rewriter.finish("fuse-epilogue", f"fused {adds} additions and {activations} activations")


def _is_read_once(node: object) -> TypeGuard[torch.fx.Node]:
    """Whether `node` is a packed call with one reader."""
    return isinstance(node, torch.fx.Node) and node.target in _PACKED and len(node.users) == 1


def _takes_residual(node: object) -> TypeGuard[torch.fx.Node]:
    if not _is_read_once(node):
        return False
    arguments = bound_arguments(node)
    return arguments["act"] == 0 and arguments["residual"] is None


def _with(node: torch.fx.Node, **changes: Any) -> None:
    node.args = tuple((bound_arguments(node) | changes).values())
    node.kwargs = {}


def _fuse_add(rewriter: Rewriter, node: torch.fx.Node, order: dict[torch.fx.Node, int]) -> int:
    if bound_arguments(node)["alpha"] != 1:
        return 0
    if _fuse_turned_add(rewriter, node):
        return 1
    pairs = [(node.args[0], node.args[1]), (node.args[1], node.args[0])]
    # The later one of two packed operands takes the other as its residual: its inputs are ready then.
    pairs.sort(key=lambda pair: -order.get(pair[0], -1) if isinstance(pair[0], torch.fx.Node) else 1)
    for packed, other in pairs:
        if not _takes_residual(packed) or not isinstance(other, torch.fx.Node) or packed is other:
            continue
        if not isinstance(other.meta.get("val"), torch.Tensor) or not same_shape(packed, other):
            continue
        if dtype_of(other) != dtype_of(packed):
            continue
        # Everything that the call reads must come before it: move it down to the addition.
        rewriter.report(node, f"addition fused into {packed.name}")
        node.prepend(packed)
        _with(packed, residual=other)
        rewriter.replace(node, packed)
        return 1
    return 0


def _fuse_turned_add(rewriter: Rewriter, node: torch.fx.Node) -> bool:
    """Fuses an addition to the permuted rows of a linear, as where convolutions and linears take turns: the other
    operand is permuted back, and the sum is.
    """
    for turned, other in ((node.args[0], node.args[1]), (node.args[1], node.args[0])):
        if not isinstance(turned, torch.fx.Node) or turned.target is not aten.permute.default or len(turned.users) > 1:
            continue
        packed = turned.args[0]
        if not _takes_residual(packed) or packed.target not in _ROWS or not isinstance(other, torch.fx.Node):
            continue
        if not isinstance(other.meta.get("val"), torch.Tensor) or not same_shape(turned, other):
            continue
        if dtype_of(other) != dtype_of(packed):
            continue
        dims = _dims(turned)
        rewriter.report(node, f"addition fused into {packed.name}")
        residual = _permuted(rewriter, other, [dims.index(d) for d in range(len(dims))], node)
        node.prepend(packed)
        _with(packed, residual=residual)
        rewriter.replace(node, rewriter.call(aten.permute.default, (packed, dims), node))
        rewriter.graph.erase_node(turned)
        return True
    return False


def _dims(permute: torch.fx.Node) -> list[int]:
    dims: list[int] = bound_arguments(permute)["dims"]
    return [d % len(dims) for d in dims]


def _permuted(rewriter: Rewriter, x: torch.fx.Node, dims: list[int], before: torch.fx.Node) -> torch.fx.Node:
    """`x` with its dims in another order: what it is itself a permutation of, if that is the one."""
    if x.target is aten.permute.default and [_dims(x)[d] for d in dims] == list(range(len(dims))):
        return as_node(x.args[0])
    return rewriter.call(aten.permute.default, (x, dims), before)


def _fuse_activation(node: torch.fx.Node, rewriter: Rewriter) -> int:
    source = node.args[0]
    if not _is_read_once(source):
        return 0
    name = activation_name(node, after=_NAMES[bound_arguments(source)["act"]])
    if name is None:
        return 0
    rewriter.report(node, f"{name} fused into {source.name}")
    _with(source, act=ops.ACTIVATIONS[name][0])
    rewriter.replace(node, source)
    return 1
