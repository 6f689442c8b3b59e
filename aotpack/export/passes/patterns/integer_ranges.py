"""Ranges of constant integers, from the operators that made them: passes see no values."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.rewriter import bound_arguments, dtype_of
from aotpack.export.passes.patterns.moves import CASTS, MOVES

aten = torch.ops.aten

Range = tuple[int, int]

# Where the node of a folded constant has the range of what it was: a pass sees no values.
_KEPT = "integer_range"

_ANDS = (aten.bitwise_and.Scalar, aten.bitwise_and.Tensor, aten.__and__.Scalar)
_RIGHT_SHIFTS = (aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Tensor, aten.__rshift__.Scalar)
_JOINS = (aten.stack.default, aten.cat.default)
_CHOICES = (aten.index.Tensor, aten.index_select.default)


def dtype_range(dtype: torch.dtype) -> Range:
    info = torch.iinfo(dtype)
    return int(info.min), int(info.max)


def integer_range(node: torch.fx.Node) -> Range:
    """Numbers between which all elements of an integer tensor lie."""
    widest = dtype_range(dtype_of(node))
    if node.op == "get_attr":
        kept: Range = node.meta.get(_KEPT, widest)
        return kept
    if node.op != "call_function":
        return widest
    if node.target in _JOINS:
        parts = [integer_range(part) for part in node.all_input_nodes]
        return min(low for low, _ in parts), max(high for _, high in parts)
    source = node.args[0]
    if not isinstance(source, torch.fx.Node) or dtype_of(source).is_floating_point or dtype_of(source) == torch.bool:
        return widest
    if node.target in (*MOVES, *_CHOICES):
        return integer_range(source)
    if node.target in CASTS:
        return within(integer_range(source), widest)
    if node.target in _ANDS:
        mask = node.args[1]
        return (0, mask) if isinstance(mask, int) and mask >= 0 else widest
    if node.target in _RIGHT_SHIFTS:
        (low, high), count = integer_range(source), node.args[1]
        if isinstance(count, int) and count >= 0:
            return low >> count, high >> count
        return (0, high) if low >= 0 else widest
    if node.target in (aten.clamp.default, aten.remainder.Scalar):
        arguments = bound_arguments(node)
        if node.target is aten.remainder.Scalar:
            divisor = arguments["other"]
            return (0, divisor - 1) if isinstance(divisor, int) and divisor > 0 else widest
        low, high = arguments["min"], arguments["max"]
        both = isinstance(low, int) and isinstance(high, int)
        return (low, high) if both and widest[0] <= low <= high <= widest[1] else widest
    if node.target in (aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar):
        return within(sum_range(node, integer_range(source)), widest)
    return widest


def keep_range(constant: torch.fx.Node, of: torch.fx.Node) -> None:
    """Notes at a constant, which is computed as `of` is, what the operators say about its integers."""
    if _is_integer(of):
        constant.meta[_KEPT] = integer_range(of)


def sum_range(node: torch.fx.Node, first: Range) -> Range:
    """Of a sum or difference, without regard to its dtype, from the range of its first operand."""
    other = node.args[1]
    if bound_arguments(node).get("alpha", 1) != 1 or not isinstance(other, (int, torch.fx.Node)):
        return dtype_range(torch.int64)
    if isinstance(other, torch.fx.Node) and not _is_integer(other):
        return dtype_range(torch.int64)
    low, high = integer_range(other) if isinstance(other, torch.fx.Node) else (other, other)
    if node.target in (aten.sub.Tensor, aten.sub.Scalar):
        low, high = -high, -low
    return first[0] + low, first[1] + high


def within(found: Range, widest: Range) -> Range:
    """The range, or that of the dtype where numbers outside wrap."""
    return found if widest[0] <= found[0] and found[1] <= widest[1] else widest


def _is_integer(node: torch.fx.Node) -> bool:
    dtype = dtype_of(node)
    return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
