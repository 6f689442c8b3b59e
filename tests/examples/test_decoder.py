"""The decoder: two entries over one set of weights, and a cache that goes from one to the other."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import aotpack
from aotpack.archive import ArchiveReader

from .conftest import EXAMPLES, build, load_module, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]

TOKENS = 64


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that the README builds."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    return build(EXAMPLES / "decoder" / "model.py", tmp_path_factory.mktemp("decoder") / "decoder.aotpack")


@pytest.fixture(scope="module")
def source() -> ModuleType:
    pytest.importorskip("transformers")
    return load_module(EXAMPLES / "decoder" / "model.py")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_module(EXAMPLES / "decoder" / "generate.py")


def prompt(length: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 1000, length)]


def by_transformers(source: ModuleType, tokens: list[int], count: int) -> list[int]:
    import torch

    model, ids = source.language_model(), torch.tensor([tokens])
    with torch.no_grad():
        # Without a mask, tokens that are the padding's would be taken for it.
        given = {"attention_mask": torch.ones_like(ids), "eos_token_id": None, "pad_token_id": 0}
        ids = model.generate(ids, max_new_tokens=count, do_sample=False, **given)
    return [int(token) for token in ids[0, len(tokens) :]]


@pytest.mark.parametrize("length", [1, 2, 9, 130])
def test_greedy_tokens_are_those_of_transformers(
    decoder: Path, source: ModuleType, example: ModuleType, length: int
) -> None:
    tokens = prompt(length, seed=length)
    expected = by_transformers(source, tokens, TOKENS)
    assert example.generate(aotpack.load(decoder).context(), tokens, TOKENS) == expected


def test_without_torch(decoder: Path, source: ModuleType) -> None:
    tokens = prompt(5)
    # generate.py asserts itself that torch is not there.
    output = run(sys.executable, EXAMPLES / "decoder" / "generate.py", decoder, *map(str, tokens))
    assert [int(token) for token in output.split()] == by_transformers(source, tokens, TOKENS)


def test_logits_up_to_the_end_of_the_cache(decoder: Path, source: ModuleType) -> None:
    import torch

    model, context = source.language_model().double(), aotpack.load(decoder).context()
    tokens = prompt(source.MAX_LENGTH)
    with torch.no_grad():
        expected = model(torch.tensor([tokens]), return_dict=False)[0][0, -2:]
    first = np.asarray(context.entry("prefill")(np.array([tokens[:-1]])))
    second = np.asarray(context.entry("decode")(np.array([tokens[-1:]]), len(tokens) - 1))
    for got, wanted in zip((first, second), expected.numpy(), strict=True):
        assert np.abs(got[0] - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_a_context_remembers_until_it_is_reset(decoder: Path) -> None:
    model = aotpack.load(decoder)
    context, fresh = model.context(), model.context()
    token = np.array([[5]])

    def decode(context: aotpack.Context) -> np.ndarray:
        return np.asarray(context.entry("decode")(token, 7)).copy()

    empty = decode(fresh)
    context.entry("prefill")(np.array([prompt(7)]))
    assert not np.array_equal(decode(context), empty)
    context.reset()
    assert np.array_equal(decode(context), empty)


def test_two_conversations_do_not_disturb_each_other(decoder: Path, example: ModuleType) -> None:
    model = aotpack.load(decoder)
    prompts = [prompt(6, seed=1), prompt(11, seed=2)]
    alone = [example.generate(model.context(), tokens, 12) for tokens in prompts]
    contexts = [model.context() for _ in prompts]
    logits = [context.entry("prefill")(np.array([tokens])) for context, tokens in zip(contexts, prompts, strict=True)]
    taken: list[list[int]] = [[], []]
    for step in range(12):
        for i, context in enumerate(contexts):
            taken[i].append(int(np.asarray(logits[i])[0].argmax()))
            logits[i] = context.entry("decode")(np.array([taken[i][-1:]]), len(prompts[i]) + step)
    assert taken == alone


def test_weights_are_stored_once_and_the_cache_is_state(decoder: Path, source: ModuleType) -> None:
    model = source.language_model()
    needed = sum(parameter.numel() * 4 for parameter in model.parameters())
    with ArchiveReader(decoder) as reader:
        manifest = reader.manifest
    stored = sum(file.size for file in manifest.files if file.path.startswith("weights/"))
    # The cache's initial value is zeros, the same for all layers: one copy of 4 x 512 x 32 floats.
    assert needed <= stored <= 1.1 * needed
    assert {c.name for c in manifest.constants if c.mutated} == {
        f"{kind}_{layer}" for kind in ("keys", "values") for layer in range(model.config.num_hidden_layers)
    }
    prefill, decode = manifest.entries
    assert set(decode.variants[0].modules[0].constants) >= {i for i, c in enumerate(manifest.constants) if c.mutated}
    shared = set(prefill.variants[0].modules[0].constants) & set(decode.variants[0].modules[0].constants)
    assert sum(manifest.constants[i].nbytes for i in shared) >= needed


def test_what_is_out_of_range_is_named(decoder: Path) -> None:
    model = aotpack.load(decoder)
    with pytest.raises(aotpack.errors.InputError, match=r"'length'.*must be in \[1, 511\], got 512"):
        model.entry("prefill")(np.zeros((1, 512), np.int64))
    with pytest.raises(aotpack.errors.InputError, match=r"'position'.*must be in \[0, 511\], got 512"):
        model.entry("decode")(np.zeros((1, 1), np.int64), 512)
