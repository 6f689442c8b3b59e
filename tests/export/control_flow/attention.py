"""flex_attention with the scores and masks that models use, and checkpointed blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from tests.export.control_flow.cases import batch, case


def causal(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s + 0.1 * (i - j), -torch.inf))


class Alibi(nn.Module):
    """A slope for each head, heads of queries in groups, dynamic batch and length."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.rand(4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + self.slopes[h] * (j - i), enable_gqa=True, scale=0.3
        )


def window(q: Tensor, k: Tensor, v: Tensor) -> Any:
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 16), None, None, 160, 160, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


def documents(q: Tensor, document: Tensor) -> Any:
    mask = create_block_mask(
        lambda b, h, i, j: (i >= j) & (document[b, i] == document[b, j]), 1, None, 160, 160, device="cpu"
    )
    return flex_attention(q, q, q, block_mask=mask, return_lse=True)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False) + x  # type: ignore[no-any-return]


def heads(*shape: int, count: int = 3) -> tuple[Tensor, ...]:
    return tuple(torch.randn(*shape) for _ in range(count))


def grouped(size: int, length: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(size, count, length, 8) for count in (4, 2, 2))


_ROWS, _LENGTH = batch(3), batch(24)
_DIMS = {0: _ROWS, 2: _LENGTH}
ATTENTION = {
    "causal": case(causal, heads(1, 2, 16, 8), heads(1, 2, 16, 8)),
    "alibi": case(Alibi(), grouped(2, 10), grouped(1, 1), grouped(3, 24), dims=[_DIMS, _DIMS, _DIMS]),
    "window": case(window, heads(2, 2, 160, 8)),
    "documents": case(documents, *((torch.randn(1, 2, 160, 8), torch.randint(0, 3, (1, 160))) for _ in range(2))),
    "checkpointed": case(Checkpointed(), (torch.randn(4, 8),), (torch.randn(4, 8),)),
}
