"""Models that repeat blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """The second half of a transformer's layer."""

    def __init__(self, width: int = 8, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Counting(Block):
    """A block that writes to a buffer which it alone reads."""

    seen: Tensor

    def __init__(self, width: int = 8) -> None:
        super().__init__(width)
        self.register_buffer("seen", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(0))
        return super().forward(x + self.seen)


class Stack(nn.Module):
    """Blocks in a row between two other layers."""

    def __init__(self, blocks: Sequence[nn.Module], width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).tanh()
        for block in self.blocks:
            x = block(x)
        return self.head(x)
