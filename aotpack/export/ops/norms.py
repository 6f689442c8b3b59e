"""Normalizes rows."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.registry import define, unaliased


def _layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return unaliased(F.layer_norm(x, x.shape[-1:], weight, bias, eps).contiguous(), x)


def _layer_norm_fake(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return x.new_empty(x.shape)


layer_norm = define(
    "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor", _layer_norm, _layer_norm_fake
)
"""Over the last dim of x, in float; weight and bias are [x.shape[-1]] and have its dtype. The result is contiguous."""
