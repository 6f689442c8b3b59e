"""Rules for the layouts of an operator's operands and result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import torch
import torch.fx

from aotpack.export.passes.cpu.layouts.orders import DimMap, Order, Relation, is_one


class Kind(Enum):
    """How the layout of a result comes about."""

    VIEW = "view"  # the operand's memory, looked at differently
    POINTWISE = "pointwise"  # a generated loop, which can also write in another order than it reads
    FOLLOWS = "follows"  # a generated loop over more than one element per result
    STUBBORN = "stubborn"  # likewise, but Inductor writes it contiguous unless told otherwise
    CAT = "cat"  # parts are copied into a contiguous whole
    FIXED = "fixed"  # the operator decides


class Need(Enum):
    """How exactly a demand is meant."""

    ORDER = "order"  # the order of dims
    DENSE = "dense"  # the order of dims, and no holes
    EVEN = "even"  # the order of dims, and holes after each run of the innermost dim at most
    ROWS = "rows"  # the last dim is the innermost
    EXACT = "exact"  # the strides are part of the operator's meaning


class Density(IntEnum):
    """How closely the elements of a value lie, in the order of its dims."""

    HOLES = 0  # anywhere
    EVEN = 1  # runs of the innermost dim lie evenly apart: some channels of what is channels-last
    DENSE = 2


@dataclass(frozen=True)
class Flow:
    """An operand that the result follows."""

    source: torch.fx.Node
    relation: Relation


@dataclass(frozen=True)
class Demand:
    """An operand that the operator wants in a given order."""

    source: torch.fx.Node
    order: Order
    need: Need = Need.ORDER


@dataclass(frozen=True)
class Rule:
    """What an operator does.

    Attributes:
        kind: how the layout of the result comes about.
        flows: the operands that the result follows. A view has one.
        demands: the operands that must have a given order.
        cut: for views: the operand's dims of which the view skips some part.
        loose: for views: whether the result may overlap itself.
    """

    kind: Kind
    flows: tuple[Flow, ...] = ()
    demands: tuple[Demand, ...] = ()
    cut: tuple[int, ...] = ()
    loose: bool = False


def tensor_of(node: object) -> torch.Tensor | None:
    """The fake tensor of a node, the first one of a node with several; None for what is no tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, torch.Tensor) else None


def density_of_view(rule: Rule, operand: Density, order: Order, sizes: Sequence[Any]) -> Density:
    """How closely a view of an operand in this order lies.

    A cut of the outermost dim leaves no holes, one of the innermost leaves its runs evenly apart.
    """
    if rule.loose:
        return Density.HOLES
    outer = set[int]()
    inner = False
    for d in order:
        if d in rule.cut and not all(is_one(sizes[o]) for o in outer):
            if d != order[-1]:
                return Density.HOLES
            inner = True
        outer.add(d)
    if operand is Density.DENSE and not inner:
        return Density.DENSE
    return min(operand, Density.EVEN) if _keeps_dims(rule) else Density.HOLES


def _keeps_dims(rule: Rule) -> bool:
    """Whether each dim of a view's operand is one of the view's."""
    relation = rule.flows[0].relation
    return isinstance(relation, DimMap) and set(relation.source) == set(range(len(relation.operand_sizes)))
