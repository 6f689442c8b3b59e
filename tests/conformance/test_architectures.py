"""The tool that builds transformers' architectures: one of them, and what it says of a name that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.architectures import run_all

pytestmark = pytest.mark.torch


def test_right_and_failing_architectures(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, none = run_all(["mobilebert", "nonesuch"], jobs=1, cache=cache_dir)
    assert right["ending"] == "ok"
    assert 0 < right["error"] < 1e-5
    assert none["ending"] == "fails"
    assert "nonesuch" in none["reason"]
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["mobilebert", "ok"],
        ["nonesuch", "fails"],
    ]
