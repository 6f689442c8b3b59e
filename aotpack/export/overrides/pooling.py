"""`max_pool1d` of a dynamic length, which torch fixes where it computes no indices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.overrides.table import overrides


@overrides(torch.max_pool1d, torch.nn.functional.max_pool1d)
def _max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices or not any(isinstance(size, torch.SymInt) for size in input.shape):
        return NotImplemented
    step = kernel_size if stride is None or stride == () else stride
    return torch.max_pool1d_with_indices(input, kernel_size, step, padding, dilation, ceil_mode)[0]
