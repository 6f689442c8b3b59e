"""Max pooling of two dims by a kernel, and of quantized values by their bytes.

TorchInductor generates a loop that asks for each element whether it is inside, and computes in float. Dequantization
keeps the order of numbers, or reverses it where the scale is negative.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, shape_of
from aotpack.export.passes.cpu.layouts.operators import channels_last_calls
from aotpack.export.passes.patterns import quantized

aten = torch.ops.aten

_POOLS = (aten.max_pool2d.default, aten.max_pool2d_with_indices.default)


@dataclass(frozen=True)
class _Pool:
    """A pooling without indices: what it reads, its geometry, and the node that is its result."""

    x: torch.fx.Node
    geometry: tuple[Any, ...]
    result: torch.fx.Node


def pool_bytes(program: Program) -> Program:
    """Replaces max pooling of dequantized activations by pooling of their numbers."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_POOLS):
        pool = _pool(node)
        source = None if pool is None else quantized.activation(rewriter, pool.x, moves=False)
        if pool is None or source is None or not _fits(source.scale) or not _has_no_gaps(pool):
            continue
        pooled = rewriter.call(ops.max_pool, (source.numbers, source.scale.scale, *pool.geometry), pool.result)
        rewriter.report(node, "pools bytes")
        for user in list(pool.result.users):
            if user.target is ops.quantize and _is_scale(rewriter, user, source.scale):
                rewriter.replace(user, pooled)
        if pool.result.users:
            arguments = list(pool.x.args)
            arguments[0] = pooled
            target: Any = pool.x.target
            rewriter.replace(pool.result, rewriter.call(target, tuple(arguments), pool.result, **pool.x.kwargs))
    return rewriter.finish("pool-bytes", f"{rewriter.changed} poolings are of bytes")


def use_max_pool(program: Program) -> Program:
    """Replaces max pooling by `aotpack::max_pool`, in programs with packed convolutions."""
    rewriter = Rewriter(program)
    if not channels_last_calls(rewriter.graph):
        return program
    for node in rewriter.nodes(*_POOLS):
        pool = _pool(node)
        if pool is not None and dtype_of(pool.x) in ops.KERNEL_DTYPES:
            rewriter.report(node, "greatest elements of windows")
            rewriter.replace(pool.result, rewriter.call(ops.max_pool, (pool.x, None, *pool.geometry), pool.result))
    return rewriter.finish("use-max-pool", f"found {rewriter.changed} max poolings")


def _pool(node: torch.fx.Node) -> _Pool | None:
    x, kernel, stride, padding, dilation, ceil_mode = bound_arguments(node).values()
    result = node
    if node.target is aten.max_pool2d_with_indices.default:
        users = list(node.users)
        if len(users) != 1 or users[0].target is not operator.getitem or users[0].args[1] != 0:
            return None
        result = users[0]
    lists = [_pair(each) for each in (kernel, stride or kernel, padding, dilation)]
    fits = isinstance(x, torch.fx.Node) and len(shape_of(x)) == 4 and all(each is not None for each in lists)
    return _Pool(as_node(x), (*lists, bool(ceil_mode)), result) if fits else None


def _pair(value: Any) -> list[int] | None:
    values = [value] if isinstance(value, int) else list(value)
    values = values * 2 if len(values) == 1 else values
    return values if len(values) == 2 and all(isinstance(each, int) for each in values) else None


def _fits(scale: quantized.Scale) -> bool:
    return dtype_of(scale.scale) == torch.float32


def _is_scale(rewriter: Rewriter, quantize: torch.fx.Node, scale: quantized.Scale) -> bool:
    """Whether a quantization has this scale: the same constants, not equal ones, which may be replaced one by one."""
    own = quantized.scale_of(rewriter, quantize)
    return (
        own is not None
        and own.dtype == scale.dtype
        and _same(rewriter, own.scale, scale.scale)
        and _same(rewriter, own.zero, scale.zero)
    )


def _same(rewriter: Rewriter, a: torch.fx.Node | None, b: torch.fx.Node | None) -> bool:
    if a is b or a is None or b is None:
        return a is b
    own = rewriter.identity(a)
    return own is not None and own == rewriter.identity(b)


def _has_no_gaps(pool: _Pool) -> bool:
    """Whether each window has an element: the least number is no least value."""
    return all(step == 1 for step in pool.geometry[3])
