"""Likely values of dynamic sizes, for choices that are right for every size."""

from __future__ import annotations

import math
from typing import Any

import torch

_UNBOUNDED = 4096
# For sizes of which nothing is known.
_UNKNOWN = 16


def size_hint(size: Any) -> int:
    """A likely value of a size: the example's, else the geometric middle of its range. Never adds a guard."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node.has_hint():
        return int(size.node.hint)
    ranges = size.node.shape_env.var_to_range
    value = size.node.expr.subs({symbol: _middle(ranges.get(symbol)) for symbol in size.node.expr.free_symbols})
    return int(value) if value.is_number and value.is_finite else _UNKNOWN


def size_limit(size: Any) -> int | None:
    """The largest value of a size, as far as its range says; None where there is none. Never adds a guard."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    return int(upper) if upper.is_Integer else None


def _middle(limits: Any) -> int:
    if limits is None:
        return _UNKNOWN
    low = max(1, int(limits.lower)) if limits.lower.is_finite else 1
    high = int(limits.upper) if limits.upper.is_finite and limits.upper < _UNBOUNDED else max(low, _UNBOUNDED)
    return math.isqrt(low * high)
