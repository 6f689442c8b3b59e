"""Constant matrices that are integers of 4 or 8 bits with scales and zero points of groups, however that is written.

Such a matrix is the end of a path of calls that begins at the integers. Calls on it move elements, convert them, or
multiply or add other constants: together they are `q * scale + offset`. What repeats in scale and offset is read off
the calls, by running those that move elements on their positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, ancestors, bound_arguments, dtype_of, shape_of
from aotpack.export.passes.patterns.chosen_groups import Chosen, chosen, same_value
from aotpack.export.passes.patterns.integer_ranges import dtype_range, integer_range, sum_range
from aotpack.export.passes.patterns.moves import CASTS, MOVES, RESHAPES
from aotpack.export.torch_compat.operators import OpOverload, operator_schema

aten = torch.ops.aten

PRODUCTS = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
SUMS = (aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar)

# Scales of fewer numbers would be more bytes than these.
_SMALLEST_GROUP = 8


@dataclass(frozen=True)
class QuantizedMatrix:
    """Attributes:
    matrix: the end of the path.
    numbers: its beginning, integers in [low, low + 2**bits).
    path: calls behind `numbers`, the last one is `matrix`, each with the position of the argument on the path.
    group: how many numbers along k share scale and offset.
    choice: instead, which group a number along k belongs to, by its place (`g_idx`).
    centred: whether `offset` is zero.
    """

    matrix: torch.fx.Node
    numbers: torch.fx.Node
    path: tuple[tuple[torch.fx.Node, int], ...]
    low: int
    bits: int
    group: int
    choice: Chosen | None
    centred: bool


def quantized_matrix(rewriter: Rewriter, matrix: Any, k_axis: int) -> QuantizedMatrix | None:
    """What a constant matrix was made of; None where it was made in another way.

    Args:
        rewriter: of the graph.
        matrix: a node.
        k_axis: the dim of the matrix along which products sum.
    """
    if not isinstance(matrix, torch.fx.Node) or matrix.op != "call_function" or not _is_constant(rewriter, matrix):
        return None
    path, numbers = _path(matrix)
    if dtype_of(numbers).is_floating_point or dtype_of(numbers) == torch.bool or dtype_of(numbers).is_complex:
        return None
    low, high = integer_range(numbers)
    bits = 4 if high - low < 16 else 8
    if high - low > 255 or not _never_wraps(path, (low, high)):
        return None
    found = _groups(rewriter, matrix, numbers, k_axis)
    if found is None:
        return None
    group, choice = found
    centred = _is_centred(path, low + (1 << (bits - 1)))
    return QuantizedMatrix(matrix, numbers, path, low, bits, group, choice, centred)


def _is_centred(path: tuple[tuple[torch.fx.Node, int], ...], middle: float) -> bool:
    """Whether what `middle` becomes on the path is known, and zero."""
    for node, position in path:
        if node.target in SUMS:
            number = node.args[1]
            if position != 0 or not isinstance(number, (int, float)):
                return False
            middle += -number if node.target in SUMS[2:] else number
        elif node.target in PRODUCTS and middle != 0:
            return False
    return middle == 0


def _is_constant(rewriter: Rewriter, node: torch.fx.Node) -> bool:
    """Whether a value of static sizes depends on constants alone."""
    pending, seen = [node], set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        if rewriter.constant(current) is not None:
            continue
        value = current.meta.get("val")
        if current.op != "call_function" or not isinstance(value, torch.Tensor) or not _is_pure(current):
            return False
        if any(not isinstance(size, int) for size in value.shape):
            return False
        pending += current.all_input_nodes
    return True


def _is_pure(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, OpOverload) or node.target.namespace not in ("aten", "prims"):
        return False
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    return not random and not operator_schema(node.target).is_mutable


def _path(matrix: torch.fx.Node) -> tuple[tuple[tuple[torch.fx.Node, int], ...], torch.fx.Node]:
    path: list[tuple[torch.fx.Node, int]] = []
    node = matrix
    while node.op == "call_function":
        if node.target in (*MOVES, *CASTS):
            position = 0
        elif node.target in (*PRODUCTS, *SUMS) and bound_arguments(node).get("alpha", 1) == 1:
            first, second = node.args[:2]
            position = 0
            if isinstance(first, torch.fx.Node) and isinstance(second, torch.fx.Node):
                position = 0 if _content(first) >= _content(second) else 1
            if position == 1 and node.target in (aten.div.Tensor, aten.div.Scalar):
                break
        else:
            break
        source = node.args[position]
        if not isinstance(source, torch.fx.Node):
            break
        path.append((node, position))
        node = source
    path.reverse()
    return tuple(path), node


def _content(node: torch.fx.Node) -> int:
    """How many elements a value has that are not repetitions of others."""
    own: int = math.prod(shape_of(node))
    if node.op == "call_function" and node.target in (*MOVES, *CASTS, *PRODUCTS, *SUMS, aten.index.Tensor):
        return min(own, max((_content(source) for source in node.all_input_nodes), default=1))
    return own


def _never_wraps(path: tuple[tuple[torch.fx.Node, int], ...], bounds: tuple[int, int]) -> bool:
    """Whether integers on the path stay within their dtypes, so that arithmetic on them is that of numbers."""
    for node, position in path:
        dtype = dtype_of(node)
        if dtype.is_floating_point:
            return True
        if node.target in SUMS:
            if position != 0:
                return False
            bounds = sum_range(node, bounds)
        elif node.target in PRODUCTS:
            return False
        low, high = dtype_range(dtype)
        if bounds[0] < low or bounds[1] > high:
            return False
    return True


class _Unknown(Exception):
    pass


# Which of its elements a constant has at each place of the matrix, and the call that chose them by an index.
_Places = tuple[torch.Tensor, Chosen | None]


def _groups(
    rewriter: Rewriter, matrix: torch.fx.Node, numbers: torch.fx.Node, k_axis: int
) -> tuple[int, Chosen | None] | None:
    """How many neighbours along k have scale and offset in common, at most, or by what their group is chosen."""
    depth: int = shape_of(matrix)[k_axis]
    try:
        places = _places(matrix, numbers)
    except _Unknown:
        return None
    group, choice = 0, None
    for place, by in places:
        rows = place.expand(shape_of(matrix))
        rows = rows if k_axis == 1 else rows.t()
        if by is not None and by.follows(rows):
            if choice is not None and (by.groups != choice.groups or not same_value(rewriter, by.index, choice.index)):
                return None
            choice = by
            continue
        borders = (rows[:, 1:] != rows[:, :-1]).any(0).nonzero().flatten() + 1
        group = math.gcd(group, *borders.tolist())
    if choice is not None:
        enough = choice.groups * _SMALLEST_GROUP <= depth
        return (0, choice) if group == 0 and enough else None
    group = group or max(depth, 1)
    return (group, None) if group >= min(_SMALLEST_GROUP, depth) else None


def _places(node: torch.fx.Node, numbers: torch.fx.Node) -> list[_Places]:
    """For each constant that an element is made of, the numbers aside, which of its elements it is."""
    if node is numbers:
        return []
    size = math.prod(shape_of(node))
    choice = None
    if node.op == "call_function":
        if node.target in MOVES:
            (source, *rest) = node.args
            target: Any = aten.reshape.default if node.target in RESHAPES[:3] else node.target
            if not isinstance(source, torch.fx.Node):
                raise _Unknown
            whole = shape_of(source)
            found = _places(source, numbers)
            return [(target(place.expand(whole), *rest, **node.kwargs), by) for place, by in found]
        if node.target in (*CASTS, *PRODUCTS, *SUMS):
            return [place for source in node.all_input_nodes for place in _places(source, numbers)]
        if numbers in ancestors([node]):
            raise _Unknown
        choice = chosen(node)
    if size == 1:
        return []
    return [(torch.arange(size, dtype=torch.int32).reshape(shape_of(node)), choice)]
