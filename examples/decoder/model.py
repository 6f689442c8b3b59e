"""A Llama with its key-value cache as state, a source file for `aotpack build examples/decoder/model.py`.

One archive, two entries, one copy of the weights. `prefill` reads a prompt of any length and fills the cache; `decode`
adds one token. The cache is state: buffers that both entries write to, of which every context has its own.

The architecture is transformers' own (rotary positions, grouped queries, SwiGLU), the weights are random from a fixed
seed: what counts is that the archive chooses the same tokens as `generate` of transformers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from aotpack import Dim

VOCABULARY = 1000
MAX_LENGTH = 512


class Cache:
    """The cache interface of transformers: `update` stores new keys and values and returns those to attend to."""

    def __init__(self, decoder: Decoder, start: int, length: int) -> None:
        self._decoder = decoder
        self._start = start
        self._length = length

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """keys, values: [1, heads, length, width], for the positions from `start` on."""
        return tuple(self._write(f"{kind}_{layer}", new) for kind, new in (("keys", keys), ("values", values)))

    def _write(self, name: str, new: Tensor) -> Tensor:
        buffer = getattr(self._decoder, name)
        buffer.narrow(2, self._start, self._length).copy_(new)
        return buffer.narrow(2, 0, self._start + self._length)


class Decoder(nn.Module):
    """A causal language model with a cache for `max_length` tokens. Call its methods, not the module."""

    def __init__(self, model: nn.Module, max_length: int = MAX_LENGTH) -> None:
        super().__init__()
        self.model = model
        config = model.config
        shape = (1, config.num_key_value_heads, max_length, config.head_dim)
        for layer in range(config.num_hidden_layers):
            for kind in ("keys", "values"):
                self.register_buffer(f"{kind}_{layer}", torch.zeros(shape), persistent=False)

    def prefill(self, ids: Tensor) -> Tensor:
        """ids: int64 [1, length], a prompt -> logits [1, vocabulary] of the next token. Resets the cache."""
        length = ids.shape[1]
        positions = torch.arange(length)[None]
        return self._logits(ids, positions, _earlier(length), Cache(self, 0, length))

    def decode(self, token: Tensor, position: int) -> Tensor:
        """token: int64 [1, 1], at `position` -> logits [1, vocabulary] of the next token."""
        return self._logits(token, torch.full((1, 1), position), torch.zeros(1, position + 1), Cache(self, position, 1))

    def _logits(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: Cache) -> Tensor:
        """mask: [new, known], added to the scores."""
        logits = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask[None, None],
            past_key_values=cache,
            logits_to_keep=1,
            return_dict=False,
        )[0]
        return logits[:, -1]


def _earlier(length: int) -> Tensor:
    """float32 [length, length]: 0 for positions that a token may attend to, -inf for later positions."""
    return torch.full((length, length), -torch.inf).triu(1)


def language_model() -> nn.Module:
    """A small Llama: four layers of width 256, eight heads that share four pairs of keys and values."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.1,
        attn_implementation="eager",  # other implementations have a special case for prompts of one token
    )
    return LlamaForCausalLM(config).eval()


def model() -> nn.Module:
    return Decoder(language_model()).eval()


def entries() -> dict[str, dict[str, Any]]:
    """The two entries. A prompt leaves room for at least one token; each further token has the next position."""
    length, position = Dim("length", 1, MAX_LENGTH - 1), Dim("position", 0, MAX_LENGTH - 1)
    return {
        "prefill": {
            "method": "prefill",
            "args": (torch.arange(12)[None],),
            "dynamic_shapes": {"ids": {1: length}},
        },
        "decode": {
            "method": "decode",
            "args": (torch.zeros(1, 1, dtype=torch.int64), 12),
            "dynamic_shapes": {"position": position},
        },
    }
