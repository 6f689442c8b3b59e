"""Models of section 003 whose asserts are Python's. Not in a file of tests, whose asserts pytest writes anew."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WithoutMessage(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        assert a == b
        return a + b


class WithMessage(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        assert a == b, "test message"
        return a + b


class WithEmptyMessage(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        assert a == b, ""
        return a + b


class WithMultilineMessage(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        error_msg = """
An error message with
terminating newline
"""
        assert a == b, error_msg
        return a + b


class OfSizes(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        assert a.shape[0] > b.shape[0], "a must be longer"
        return a.sum() + b


class OnMeta(nn.Module):
    """An embedding with positions; the activation depends on the number of ids."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(num_embeddings=42, embedding_dim=16)
        self.layernorm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        emb = self.emb(x)
        emb = emb + torch.arange(emb.shape[-1], dtype=torch.float, device=emb.device)
        lol = self.layernorm(emb)
        return torch.relu(lol) if lol.shape[0] < 30 else torch.sigmoid(lol)
