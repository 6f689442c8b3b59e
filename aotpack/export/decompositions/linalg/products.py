"""Matrix products that are sums of others, and those of groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.grouped import grouped_product


@decomposes(aten.addbmm.default)
def _addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    # A sum of products is one product over both dims at once.
    rows = batch1.permute(1, 0, 2).flatten(1)
    return aten.addmm.default(x, rows, batch2.flatten(0, 1), beta=beta, alpha=alpha)


@decomposes(aten._grouped_mm.default)
def _grouped(
    x: Tensor,
    w: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    return grouped_product(x, w, offs, bias, out_dtype)
