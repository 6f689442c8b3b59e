"""Operands and results of models that libraries compute in place of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float32, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


def values(result: Any) -> Any:
    if result.dtype != "bfloat16":
        return result.numpy().astype(np.float64)
    return torch.from_numpy(result.numpy().view(np.int16).copy()).view(torch.bfloat16).double()


def check(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.device == "cuda:0"
        assert one.dtype == str(other.dtype).removeprefix("torch.")
        error = {torch.float64: 1e-12, torch.float32: 2e-5}.get(other.dtype, 2e-2)
        np.testing.assert_allclose(values(one), other.double(), rtol=error, atol=error)
