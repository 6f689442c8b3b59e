"""Static caches of transformers: tokens of an archive, decoded without torch, are eager's.

All models, with batches of 1 and 2: `python -m tests.models.static_caches`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.models.static_caches import TOKENS, compared

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.parametrize(("name", "batch"), [("llama", 1), ("gemma3", 1), ("t5", 2), ("whisper", 1)])
def test_greedy_tokens(name: str, batch: int, tmp_path: Path, cache_dir: Path) -> None:
    result = compared(name, batch, tmp_path, cache_dir)
    assert [len(row) for row in result["expected"]] == [TOKENS] * batch
    assert result["margin"] > 1e-4, "a tie, which rounding may decide"
    assert result["tokens"] == result["expected"]
