"""Small models of transformers: one of each way in which architectures differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tests.gpu.cases import Case

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}


class _FirstResult(nn.Module):
    """A model that is called by position and returns one tensor."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Tensor) -> Tensor:
        result: Tensor = self.model(**dict(zip(self.names, args, strict=True)))[0]
        return result


def _tokens() -> Tensor:
    return torch.randint(0, 1000, (2, 16))


def _bert() -> Case:
    model = transformers.BertModel(transformers.BertConfig(vocab_size=1000, **_SIZES))
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 11:] = 0
    return _FirstResult(model, "input_ids", "attention_mask").eval(), (_tokens(), mask), None


def _gpt2() -> Case:
    config = transformers.GPT2Config(
        vocab_size=1000, n_embd=64, n_layer=2, n_head=4, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return _FirstResult(transformers.GPT2LMHeadModel(config), "input_ids").eval(), (_tokens(),), None


def _llama(dtype: torch.dtype) -> Case:
    config = transformers.LlamaConfig(vocab_size=1000, num_key_value_heads=2, use_cache=False, **_SIZES)
    return _FirstResult(transformers.LlamaForCausalLM(config), "input_ids").eval().to(dtype), (_tokens(),), None


def _mixtral() -> Case:
    config = transformers.MixtralConfig(
        vocab_size=1000, num_key_value_heads=2, num_local_experts=4, use_cache=False, **_SIZES
    )
    return _FirstResult(transformers.MixtralForCausalLM(config), "input_ids").eval(), (_tokens(),), None


def _t5() -> Case:
    config = transformers.T5Config(vocab_size=1000, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return _FirstResult(transformers.T5EncoderModel(config), "input_ids").eval(), (_tokens(),), None


def architectures() -> dict[str, Callable[[], Case]]:
    """By name, a function that makes a model, its example inputs and its dynamic shapes."""
    return {
        "bert": _bert,
        "gpt2": _gpt2,
        "llama": lambda: _llama(torch.float32),
        "llama-bf16": lambda: _llama(torch.bfloat16),
        "mixtral": _mixtral,
        "t5-encoder": _t5,
    }
