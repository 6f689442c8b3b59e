"""Picking elements."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes


@decomposes(aten.take.default)
def _take(x: Tensor, index: Tensor) -> Any:
    # Python's brackets would make a number out of an index of rank 0.
    return aten.index.Tensor(x.reshape(-1), [index])
