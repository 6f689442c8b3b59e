"""Operators whose results depend on the device in torch. Models are captured on the CPU: on every device the results
have its sizes, dtypes and formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import amends

aten = torch.ops.aten


@amends(
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
    aten.native_layer_norm.default,
)
def normalization(decomposition: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Any:
    results = decomposition(x, *args, **kwargs)
    if x.device.type == "cpu":
        return results
    y, mean, rstd, *others = results
    # The flag `training` is the only bool; operators without it are for training, or have no running statistics.
    if False in (value for value in (*args, *kwargs.values()) if isinstance(value, bool)):
        mean, rstd = x.new_zeros((0,)), x.new_zeros((0,))
    return (y, mean.to(x.dtype), rstd.to(x.dtype), *others)


@amends(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(decomposition: Callable[..., Any], x: Tensor) -> Any:
    y, buffer = decomposition(x)
    return y, buffer if x.device.type == "cpu" else x.abs().neg().exp()


@amends(aten._addmm_activation.default)
def addmm_activation(
    decomposition: Callable[..., Any],
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    use_gelu: bool = False,
) -> Any:
    if use_gelu and bias.device.type != "cpu":
        return aten.gelu.default(aten.addmm.default(bias, a, b, beta=beta, alpha=alpha))
    return decomposition(bias, a, b, beta=beta, alpha=alpha, use_gelu=use_gelu)
