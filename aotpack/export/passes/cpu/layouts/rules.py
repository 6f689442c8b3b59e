"""Rules for the layouts of an operator's operands and result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import torch.fx

from aotpack.export.passes.cpu.layouts.orders import Order, Relation, is_one


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
    ROWS = "rows"  # the last dim is the innermost
    EXACT = "exact"  # the strides are part of the operator's meaning


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


def stays_dense(rule: Rule, order: Order, sizes: Sequence[Any]) -> bool:
    """Whether a view of a dense operand in this order has no holes: it cuts the outermost dim only."""
    if rule.loose:
        return False
    outer = set[int]()
    for d in order:
        if d in rule.cut and not all(is_one(sizes[o]) for o in outer):
            return False
        outer.add(d)
    return True
