"""Models of transformers from batch 1 and length 1 on: `python -m tests.models.zoo` builds more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.models.zoo import compare

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.parametrize("name", ["mixtral"])
def test_every_size(name: str, tmp_path: Path, cache_dir: Path) -> None:
    assert compare(name, tmp_path, cache_dir) == 7
