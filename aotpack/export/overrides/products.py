"""Products of groups, whose sizes torch states for fewer dtypes than it computes."""

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
