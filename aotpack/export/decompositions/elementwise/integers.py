"""Functions of integers that TorchInductor computes for floating point alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.integers import integer_binary


def _binary(x: Any, y: Any, operation: int) -> Any:
    dtype = torch.result_type(x, y)
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return NotImplemented
    device = next(value.device for value in (x, y) if isinstance(value, Tensor))
    a, b = (
        value.to(dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=dtype, device=device)
        for value in (x, y)
    )
    return integer_binary(*torch.broadcast_tensors(a, b), operation)


@decomposes(aten.gcd.default)
def _gcd(x: Tensor, y: Tensor) -> Any:
    return _binary(x, y, 0)


@decomposes(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow(x: Any, y: Tensor) -> Any:
    return _binary(x, y, 1)


@decomposes(aten.cat.default)
def _cat(tensors: list[Tensor], dim: int = 0) -> Any:
    # TorchInductor has no code of its own for 8-bit integers on the CPU.
    dtypes = {tensor.dtype for tensor in tensors}
    if not dtypes <= {torch.int8, torch.uint8}:
        return NotImplemented
    wide = aten.cat.default([tensor.to(torch.int16) for tensor in tensors], dim)
    return wide if len(dtypes) > 1 else wide.to(tensors[0].dtype)
