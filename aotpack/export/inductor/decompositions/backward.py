"""Gradients of operators that TorchInductor has code for, but not for their backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.inductor.decompositions.table import aten, decomposes


@decomposes(aten.masked_scatter_backward.default)
def _masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Any:
    """What each element of the source gets: those that were taken, in order; zero for what was left over."""
    taken = mask.expand_as(grad_output).reshape(-1)
    count = math.prod(sizes)
    # One place more, for what came from elsewhere.
    place = torch.where(taken, taken.to(torch.int64).cumsum(0) - 1, count)
    gathered = grad_output.new_zeros(count + 1).scatter(0, place, grad_output.reshape(-1))
    return gathered[:count].view(list(sizes))
