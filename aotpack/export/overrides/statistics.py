"""Covariances, whose weights torch checks by their values; what they compute is stated in torch's documentation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from aotpack.export.overrides.table import overrides
from aotpack.export.torch_compat.functions import assert_async


@overrides(torch.cov, Tensor.cov)
def _cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    if input.dim() > 2 or input.dtype == torch.bool:
        return NotImplemented
    x = input.reshape(1, -1) if input.dim() < 2 else input
    for weights in (fweights, aweights):
        if weights is not None:
            assert_async((weights >= 0).all(), "cov(): weights cannot be negative")
    given = [weights for weights in (fweights, aweights) if weights is not None]
    weights = math.prod(given[1:], start=given[0]) if given else None
    total = torch.full((), x.shape[1], device=x.device) if weights is None else weights.sum()
    if weights is not None:
        assert_async(total != 0, "cov(): weights sum to zero, can't be normalized")
    mean = (x if weights is None else x * weights).sum(1) / total
    if weights is not None and aweights is not None and correction != 0:
        degrees = total - correction * (weights * aweights).sum() / total
    else:
        degrees = total - correction
    degrees = torch.where(degrees <= 0, 0, degrees)
    centred = x - mean.unsqueeze(1)
    products = centred @ (centred if weights is None else centred * weights).t().conj()
    return torch.true_divide(products, degrees).squeeze()


@overrides(torch.corrcoef, Tensor.corrcoef)
def _corrcoef(input: Tensor) -> Any:
    covariance = _cov(input)
    if covariance is NotImplemented:
        return NotImplemented
    if covariance.dim() == 0:
        return covariance / covariance
    variance = covariance.diag()
    deviation = (variance.real if variance.is_complex() else variance).sqrt()
    result = covariance / deviation.view(-1, 1) / deviation.view(1, -1)
    if result.is_complex():
        return torch.complex(result.real.clamp(-1, 1), result.imag.clamp(-1, 1))
    return result.clamp(-1, 1)
