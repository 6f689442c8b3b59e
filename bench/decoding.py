"""Steps of text generation with a cache: one token at a fixed position, so that every call computes the same.

Each module takes the token, int64 [1, 1], and its position, int64 [1], writes keys and values of the token into its
cache, and returns the logits, [1, 1, vocabulary].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Cache(nn.Module):
    """Keys and values of one layer, [1, heads, length, dim]."""

    keys: Tensor
    values: Tensor

    def __init__(self, heads: int, length: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.randn(1, heads, length, dim))
        self.register_buffer("values", torch.randn(1, heads, length, dim))

    def forward(self, keys: Tensor, values: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, position, keys)
        self.values.index_copy_(2, position, values)
        return self.keys, self.values


class Gpt2Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.cache = Cache(heads, length, width // heads)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, -1))
        k, v = self.cache(k, v, position)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2Step(nn.Module):
    """GPT-2 (124M) with a cache of 1024 positions."""

    def __init__(self, length: int = 1024, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.length = length
        self.tokens, self.positions = nn.Embedding(50257, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Gpt2Block(width, heads, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.tokens(token) + self.positions(position)
        mask = (torch.arange(self.length, device=token.device) <= position)[None, None, None]
        for block in self.blocks:
            x = block(x, position, mask)
        return F.linear(self.norm(x), self.tokens.weight)


class LlamaBlock(nn.Module):
    """Grouped queries, rotary positions, a gated MLP."""

    def __init__(self, width: int, inner: int, heads: int, key_heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.dim, self.inner = heads, key_heads, width // heads, inner
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * self.dim, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.cache = Cache(key_heads, length, self.dim)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.key_heads, self.key_heads), 1)
        k, v = self.cache(_rotated(k, cos, sin), v, position)
        y = F.scaled_dot_product_attention(_rotated(q, cos, sin), k, v, attn_mask=mask, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class LlamaStep(nn.Module):
    """A Llama with 1.04e9 parameters that a step reads, and a cache of 1024 positions.

    It also takes several tokens at a time, [1, n], with their positions, [n].
    """

    angles: Tensor

    def __init__(
        self,
        length: int = 1024,
        layers: int = 16,
        width: int = 2048,
        inner: int = 8192,
        heads: int = 32,
        key_heads: int = 8,
        vocabulary: int = 32000,
    ) -> None:
        super().__init__()
        self.length = length
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, inner, heads, key_heads, length) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)
        dim = width // heads
        turns = 10000.0 ** -(torch.arange(0, dim, 2) / dim)
        self.register_buffer("angles", torch.outer(torch.arange(length), turns).repeat(1, 2))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.tokens(token)
        angles = self.angles[position]
        cos, sin = angles.cos(), angles.sin()
        mask = (torch.arange(self.length, device=token.device) <= position[:, None])[None, None]
        for block in self.blocks:
            x = block(x, position, mask, cos, sin)
        return self.head(self.norm(x))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
