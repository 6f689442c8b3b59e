"""Orders of dims in memory, and how they pass through operators; the vocabulary of the layout pass.

An order lists the dims of a tensor from the outermost to the innermost: (0, 1, 2, 3) is contiguous, (0, 2, 3, 1) is
channels-last. Dims of size 1 lie anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sympy
import torch

from aotpack.export.symbolic_shapes.dims import expression
from aotpack.export.symbolic_shapes.hints import size_hint

Order = tuple[int, ...]
Sizes = Sequence[Any]


def contiguous(rank: int) -> Order:
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """[n, c, *spatial] that lies as [n, *spatial, c]; a rank of at least 3."""
    return (0, *range(2, rank), 1)


def is_one(size: Any) -> bool:
    """Whether a size is 1 by its expression; never adds a guard."""
    return bool(expression(size) == 1)


def same_order(a: Order, b: Order, sizes: Sizes) -> bool:
    """Whether a dense tensor of these sizes has the same strides in both orders, those of dims of size 1 aside."""
    return [d for d in a if not is_one(sizes[d])] == [d for d in b if not is_one(sizes[d])]


def bytes_of(value: torch.Tensor) -> int:
    """The bytes that a tensor likely takes."""
    return math.prod(size_hint(size) for size in value.shape) * value.element_size()


def order_of(value: torch.Tensor) -> Order:
    """The order that a tensor's strides say. Dims with equal strides (of size 1, or expanded) stay as they come."""
    strides = [size_hint(stride) for stride in value.stride()]
    return tuple(sorted(range(value.dim()), key=lambda d: (-strides[d], d)))


class Relation(Protocol):
    """How the order of an operator's result follows from that of an operand."""

    def forward(self, order: Order) -> Order | None:
        """The result's order for an operand's; None where the result cannot follow."""

    def backward(self, order: Order) -> Order | None:
        """The operand's order for which the result has this one; None where none or more than one has."""

    def agree(self, operand: Order, result: Order) -> bool:
        """Whether an operator with this result reads this operand along its memory."""


@dataclass(frozen=True)
class DimMap:
    """Each dim of the result is a dim of the operand (`source`), or is new (None).

    Covers permutations, broadcasting, slices, reductions, and operators that keep the meaning of each dim.
    """

    source: tuple[int | None, ...]
    operand_sizes: tuple[Any, ...]
    result_sizes: tuple[Any, ...]

    def forward(self, order: Order) -> Order | None:
        place = {d: i for i, d in enumerate(order)}
        mapped = [(place[s], d) for d, s in enumerate(self.source) if s is not None]
        new = [d for d, s in enumerate(self.source) if s is None]
        return (*new, *(d for _, d in sorted(mapped)))

    def backward(self, order: Order) -> Order | None:
        mapped = [s for s in (self.source[d] for d in order) if s is not None]
        dropped = [d for d in range(len(self.operand_sizes)) if d not in mapped]
        if any(not is_one(self.operand_sizes[d]) for d in dropped):
            return None
        return (*dropped, *mapped)

    def agree(self, operand: Order, result: Order) -> bool:
        got = self.forward(operand)
        shared = [
            d
            for d, s in enumerate(self.source)
            if s is not None and not is_one(self.operand_sizes[s]) and not is_one(self.result_sizes[d])
        ]
        return got is not None and [d for d in got if d in shared] == [d for d in result if d in shared]


@dataclass(frozen=True)
class Regroup:
    """A reshape: groups of neighbouring dims of the operand become groups of neighbouring dims of the result."""

    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    operand_sizes: tuple[Any, ...]
    result_sizes: tuple[Any, ...]

    @staticmethod
    def between(operand: Sizes, result: Sizes) -> Regroup:
        """The finest grouping that the sizes' expressions prove."""
        before, after = _prefix_products(operand), _prefix_products(result)
        groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        i = j = 0
        for k in range(1, len(before)):
            match = next((m for m in range(j + 1, len(after)) if after[m] == before[k] and before[k] != 0), None)
            if match is not None:
                groups.append((tuple(range(i, k)), tuple(range(j, match))))
                i, j = k, match
        # Ones at the end belong to any group; what could not be matched is a group of its own.
        rest = (tuple(range(i, len(operand))), tuple(range(j, len(result))))
        if all(is_one(operand[d]) for d in rest[0]) and all(is_one(result[d]) for d in rest[1]) and groups:
            last = groups.pop()
            rest = (last[0] + rest[0], last[1] + rest[1])
        return Regroup((*groups, rest), tuple(operand), tuple(result))

    def forward(self, order: Order) -> Order | None:
        return _regrouped(order, self.groups, self.operand_sizes)

    def backward(self, order: Order) -> Order | None:
        return _regrouped(order, tuple((b, a) for a, b in self.groups), self.result_sizes)

    def agree(self, operand: Order, result: Order) -> bool:
        got = self.forward(operand)
        return got is not None and same_order(got, result, self.result_sizes)


def _prefix_products(sizes: Sizes) -> list[sympy.Expr]:
    products = [sympy.Integer(1)]
    for size in sizes:
        products.append(sympy.expand(products[-1] * expression(size)))
    return products


def _regrouped(
    order: Order, groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], sizes: tuple[Any, ...]
) -> Order | None:
    significant = [d for d in order if not is_one(sizes[d])]
    result: list[int] = []
    at = 0
    remaining = list(groups)
    for group in groups:
        if all(is_one(sizes[d]) for d in group[0]):
            result += group[1]
            remaining.remove(group)
    while at < len(significant):
        group = next(g for g in remaining if significant[at] in g[0])
        run = [d for d in group[0] if not is_one(sizes[d])]
        if significant[at : at + len(run)] != run:
            return None
        result += group[1]
        at += len(run)
    return tuple(result)
