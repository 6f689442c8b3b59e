"""Generation as one entry: tokens equal eager's, for every length of prompt and number of new tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import aotpack
from aotpack.errors import CaptureError
from aotpack.export import Generator
from tests.export.conftest import Build

pytestmark = pytest.mark.torch

LENGTH = 48
DIMS = {
    "input_ids": {0: aotpack.Dim("batch", min=1, max=4), 1: aotpack.Dim("prompt", min=1, max=LENGTH - 1)},
    "max_new_tokens": None,
}


def gpt2() -> PreTrainedModel:
    """One layer: a cache of several is llama's."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_head=4, n_embd=64, vocab_size=97, n_positions=64, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config).eval()


def llama(layers: int = 1) -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        intermediate_size=96,
        vocab_size=97,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


def captured(build: Build, generator: Generator) -> Any:
    example = (torch.randint(1, 97, (2, 5)), torch.tensor(7))
    return build(generator.eval(), example, dynamic_shapes=DIMS, any_size=False)


def test_greedy_tokens_are_those_of_transformers(build: Build) -> None:
    model = llama(layers=2)
    archive = captured(build, Generator(model, LENGTH))
    for batch, prompt, new in ((2, 5, 20), (1, 1, LENGTH - 1), (3, 17, 9)):
        ids = torch.randint(1, 97, (batch, prompt))
        expected = model.generate(ids, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)
        answer = archive(ids, torch.tensor(new))
        assert torch.equal(answer["sequences"][:, : prompt + new], expected)
        assert (answer["sequences"][:, prompt + new :] == 0).all()
        assert answer["lengths"].tolist() == [prompt + new] * batch


def test_stop_tokens_and_limits(build: Build) -> None:
    model = gpt2()
    # A token that this model does choose.
    chosen = model.generate(torch.tensor([[3]]), max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
    stop = int(chosen[0, 4])
    first = chosen[0, 1:].tolist().index(stop) + 1
    generator = Generator(model, LENGTH, stop_tokens=(stop, 96), pad_token=95)
    archive = captured(build, generator)
    for batch, prompt, new in ((1, 1, 40), (3, 6, 100), (2, 9, 0)):
        ids = torch.full((batch, prompt), 3) if prompt == 1 else torch.randint(1, 97, (batch, prompt))
        with torch.no_grad():
            expected = generator(ids, torch.tensor(new))
        answer = archive(ids, torch.tensor(new))
        assert torch.equal(answer["sequences"], expected["sequences"])
        assert torch.equal(answer["lengths"], expected["lengths"])
        for row, length in zip(answer["sequences"].tolist(), answer["lengths"].tolist(), strict=True):
            assert length <= min(prompt + new, LENGTH)
            assert all(token == 95 for token in row[length:])
            assert not {stop, 96} & set(row[prompt : length - 1])
    assert int(archive(torch.tensor([[3]]), torch.tensor(40))["lengths"]) == first + 1


def test_sampling_draws_from_the_most_probable(build: Build) -> None:
    model = llama()
    archive = captured(build, Generator(model, LENGTH, do_sample=True, temperature=0.7, top_k=3))
    ids = torch.randint(1, 97, (4, 5))
    answers = [archive(ids, torch.tensor(12))["sequences"] for _ in range(4)]
    assert any(not torch.equal(answers[0], other) for other in answers[1:])
    for answer in answers:
        with torch.no_grad():
            best = model(answer[:, :17]).logits.topk(4, -1).indices
        for position in range(5, 17):
            drawn = answer[:, position]
            # The fourth only where it ties with the third in the archive's arithmetic.
            assert all(token in row[:4] for token, row in zip(drawn, best[:, position - 1], strict=True))


def test_options_are_checked() -> None:
    for options in ({"max_length": 1}, {"max_length": 8, "temperature": 0.0}, {"max_length": 8, "top_k": 0}):
        with pytest.raises(CaptureError, match="cannot generate"):
            Generator(torch.nn.Identity(), **options)  # type: ignore[arg-type]
