"""Products of groups, whose sizes torch states for fewer dtypes than it computes, and sums of products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.grouped import grouped_product
from aotpack.export.overrides.table import overrides
from aotpack.export.torch_compat.functions import grouped_mm


@overrides(grouped_mm)
def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    return grouped_product(self, mat2, offs, bias, out_dtype)


@overrides(torch.einsum)
def _einsum(equation: str, *operands: Any) -> Any:
    """With dynamic sizes, operands are contracted from left to right, as torch does without the package opt_einsum.

    With it, torch chooses an order by sizes as plain ints, which would fix every dim to that of the example.
    """
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.shape):
        return torch.ops.aten.einsum.default(equation, list(tensors))
    return NotImplemented
