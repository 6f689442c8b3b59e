"""Elementwise functions of two integers."""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def _binary(a: Tensor, b: Tensor, operation: int) -> Tensor:
    result = torch.gcd(a, b) if operation == 0 else torch.pow(a, b)
    return result.contiguous()


def _binary_fake(a: Tensor, b: Tensor, operation: int) -> Tensor:
    return a.new_empty(a.shape)


# operation: 0 the greatest common divisor, 1 a to the power of b.
integer_binary = define("integer_binary(Tensor a, Tensor b, int operation) -> Tensor", _binary, _binary_fake)
