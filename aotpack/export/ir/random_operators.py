"""Which operators draw random numbers."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export.torch_compat.operators import OpOverload

aten = torch.ops.aten

# What torch (2.11 to 2.13) has not tagged `nondeterministic_seeded`.
_UNTAGGED = frozenset(
    overload
    for packet in (aten.random, aten.random_, aten.binomial, aten._sample_dirichlet)
    for overload in (getattr(packet, name) for name in packet.overloads())
)


def is_random(operator: Any) -> bool:
    """Whether two calls of an operator with the same arguments may give different results."""
    if not isinstance(operator, OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in operator.tags or operator in _UNTAGGED
