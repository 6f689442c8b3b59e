"""Tensors that have sizes and a dtype, but no memory.

Private interfaces touched (torch 2.11 to 2.13):
  torch._subclasses.fake_tensor.{FakeTensor, FakeTensorMode, unset_fake_temporarily, DataDependentOutputException,
    DynamicOutputShapeException}
"""

from __future__ import annotations

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
    "unset_fake_temporarily",
]
