"""The example of docs/training.md runs, and trains as well as eager."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import ROOT

pytestmark = pytest.mark.torch


def test_the_example_trains_as_well_as_eager(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(cache_dir))
    names: dict[str, Any] = {}
    # Without dropout, whose numbers are others than eager's.
    assert "nn.Dropout(0.1)" in blocks[0]
    exec(blocks[0].replace("nn.Dropout(0.1)", "nn.Dropout(0.0)"), names)
    assert capsys.readouterr().out.count("accuracy") == 6
    accuracy = float(names["accuracy"])
    assert accuracy > 0.9
    assert abs(accuracy - _of_eager(names)) <= 0.005


def _of_eager(names: dict[str, Any]) -> float:
    """The accuracy of the same training by torch."""
    model, images, labels = names["model"], torch.as_tensor(names["images"]), torch.as_tensor(names["labels"])
    # The capture has left it as it was made.
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    random = np.random.default_rng(0)
    for epoch in range(6):
        model.train()
        optimizer.param_groups[0]["lr"] = 0.005 / (1 + epoch)
        for rows in np.array_split(random.permutation(1350), 21):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    with torch.no_grad():
        return float((model.eval()(images[1350:]).argmax(1) == labels[1350:]).double().mean())
