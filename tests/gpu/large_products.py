"""Models with products that are large enough for the copy engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotpack

Case = tuple[Any, tuple[Any, ...], Any]


class _Feed(nn.Module):
    """Weights as linear layers and as matrix products have them, a bias, an activation and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, width), nn.Linear(width, 256)
        self.mix = nn.Parameter(torch.randn(256, width + 8) / 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.gelu(self.up(x))
        return x + self.down(y), 0.5 * (x @ self.mix) + y[:, :8].repeat(1, self.mix.shape[1] // 8)


class _Part(nn.Module):
    """Operands that begin in the middle of a row, some of them not at a multiple of 16 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2304, 256) / 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = x[:, 8:264], x[:, 3:259]
        return F.linear(left, self.weight), F.linear(right, self.weight)


def _feed(width: int, dtype: torch.dtype) -> Case:
    rows = {"x": {0: aotpack.Dim("rows", 0, 1024)}}
    return _Feed(width).to(dtype).eval(), (torch.randn(530, 256).to(dtype),), rows


def large_products() -> dict[str, Callable[[], Case]]:
    """By name, a function that makes a model, its example inputs and its dynamic shapes."""
    return {
        "large-products": lambda: _feed(2304, torch.float16),
        "large-products-bf16": lambda: _feed(6784, torch.bfloat16),
        "large-products-parts": lambda: (_Part().half().eval(), (torch.randn(512, 272).half(),), None),
    }
