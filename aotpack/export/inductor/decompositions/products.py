"""Matrix products that are sums of others."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes


@decomposes(aten.addbmm.default)
def _addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    # A sum of products is one product over both dims at once.
    rows = batch1.permute(1, 0, 2).flatten(1)
    return aten.addmm.default(x, rows, batch2.flatten(0, 1), beta=beta, alpha=alpha)
