"""Tensors that have sizes and a dtype, but no memory.

Private interfaces touched (torch 2.11 to 2.13):
  torch._subclasses.fake_tensor.{FakeTensor, FakeTensorMode, unset_fake_temporarily, DataDependentOutputException,
    DynamicOutputShapeException}
  torch._decomp.decomposition_table
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "decomposition_of",
    "unset_fake_temporarily",
]


def decomposition_of(operator: Any) -> Callable[..., Any]:
    """The function of other operators that torch computes fake results of an operator by.

    Raises:
        KeyError: there is none.
    """
    return decomposition_table[operator]
