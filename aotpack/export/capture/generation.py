"""Text generation as one entry: prompt in, tokens out. The loop over tokens is code of the archive.

Each step of the loop runs the model on one token of each sequence, over caches of keys and values that are values of
the loop. For causal language models of transformers, and models that are called as these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from aotpack.errors import CaptureError
from aotpack.export.torch_compat.higher_order import while_loop


class Generator(nn.Module):
    """A module that generates with `model`, to be captured by `aot_export`.

    `forward(input_ids, max_new_tokens)` takes prompts of equal length, int64[batch, prompt] without padding, and how
    many tokens to generate at most, an int64 tensor of rank 0. It returns a dict:

    - `"sequences"`: int64[batch, max_length], the prompts, the new tokens and `pad_token`;
    - `"lengths"`: int64[batch], the number of tokens of each sequence, its stop token included.

    It ends when each sequence has a stop token, after `max_new_tokens`, or at `max_length` tokens.

    Args:
        model: takes `input_ids`, `past_key_values` and `use_cache`, and returns an object with `logits`; its `config`
            describes a `StaticCache` of transformers.
        max_length: the number of tokens that caches have room for, prompt included.
        stop_tokens: tokens that end a sequence.
        pad_token: what follows the end of a sequence.
        do_sample: draws tokens by their probabilities; otherwise each is the most probable one.
        temperature: divides the logits before a draw.
        top_k: draws are among this number of most probable tokens; None: among all.

    Raises:
        CaptureError: `max_length` or an option of sampling is out of range.
    """

    def __init__(
        self,
        model: nn.Module,
        max_length: int,
        *,
        stop_tokens: Sequence[int] = (),
        pad_token: int = 0,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
    ) -> None:
        super().__init__()
        if max_length < 2 or temperature <= 0 or (top_k is not None and top_k < 1):
            raise CaptureError(
                f"cannot generate with max_length={max_length}, temperature={temperature}, top_k={top_k}",
                hint="max_length counts the prompt and is 2 or more, temperature is positive, top_k is 1 or more",
            )
        self.model = model
        self.max_length = max_length
        self.stop_tokens = tuple(stop_tokens)
        self.pad_token = pad_token
        self.do_sample = do_sample
        self.temperature = temperature
        self.top_k = top_k

    def forward(self, input_ids: Tensor, max_new_tokens: Tensor) -> dict[str, Tensor]:
        batch, prompt = input_ids.shape
        cache = self._cache()
        output: Any = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        token = self._chosen(output.logits[:, -1])
        keys, values = [layer.keys for layer in cache.layers], [layer.values for layer in cache.layers]
        count = len(keys)
        room = torch.full((batch, self.max_length), self.pad_token, dtype=torch.int64)
        sequences = torch.cat([input_ids, room[:, prompt:]], 1)
        positions = torch.arange(self.max_length)
        length = torch.zeros((), dtype=torch.int64) + prompt
        limit = torch.clamp(length + max_new_tokens, max=self.max_length)
        lengths = torch.zeros(batch, dtype=torch.int64) + prompt
        finished = torch.zeros(batch, dtype=torch.bool)

        def goes_on(
            length: Tensor, token: Tensor, sequences: Tensor, lengths: Tensor, finished: Tensor, *_: Tensor
        ) -> Tensor:
            return (length < limit) & ~finished.all()

        def step(
            length: Tensor, token: Tensor, sequences: Tensor, lengths: Tensor, finished: Tensor, *caches: Tensor
        ) -> tuple[Tensor, ...]:
            token = torch.where(finished, self.pad_token, token)
            sequences = torch.where(positions == length, token[:, None], sequences)
            lengths = torch.where(finished, lengths, length + 1)
            for stop in self.stop_tokens:
                finished = finished | (token == stop)
            cache = self._cache(caches[:count], caches[count:], length)
            output: Any = self.model(input_ids=token[:, None], past_key_values=cache, use_cache=True)
            following = self._chosen(output.logits[:, -1])
            held = [*(layer.keys for layer in cache.layers), *(layer.values for layer in cache.layers)]
            return (length + 1, following, sequences, lengths, finished.clone(), *held)

        results = while_loop(goes_on, step, (length, token, sequences, lengths, finished, *keys, *values))
        return {"sequences": results[2], "lengths": results[3]}

    def _cache(self, keys: Sequence[Tensor] = (), values: Sequence[Tensor] = (), length: Tensor | None = None) -> Any:
        """A cache of transformers: empty, or with `length` tokens in these tensors, which it does not write to."""
        from transformers import StaticCache

        config: Any = self.model.config
        cache: Any = StaticCache(config=config, max_cache_len=self.max_length)
        for layer, key, value in zip(cache.layers, keys, values, strict=False):
            layer.keys, layer.values = key.clone(), value.clone()
            layer.dtype, layer.device = key.dtype, key.device
            layer.batch_size, layer.num_heads = key.shape[:2]
            layer.k_head_dim, layer.v_head_dim = key.shape[-1], value.shape[-1]
            layer.cumulative_length = length.clone() if length is not None else None
            layer.is_initialized = True
        return cache

    def _chosen(self, logits: Tensor) -> Tensor:
        """The next token of each sequence."""
        if not self.do_sample:
            return logits.argmax(-1)
        scores = logits.float() / self.temperature
        if self.top_k is not None:
            least = scores.topk(self.top_k, -1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        # The greatest of scores with Gumbel noise is a draw by their softmax.
        uniform = torch.rand_like(scores).clamp(1e-20, 1 - 1e-7)
        return (scores - torch.log(-torch.log(uniform))).argmax(-1)
