"""The examples of docs/autograd.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.torch


def test_the_examples_run(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "autograd.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(cache_dir))
    names: dict[str, Any] = {}
    exec(
        blocks[0]
        .replace("for step", "losses = []\nfor step")
        .replace("    loss.b", "    losses.append(loss.item())\n    loss.b"),
        names,
    )
    assert names["losses"][-1] < 0.9 * names["losses"][0]
    exec(blocks[1], names)
    assert capsys.readouterr().out == "(32, 8) (4, 8)\n"
