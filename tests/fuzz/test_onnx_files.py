"""Some of the mutants of `python -m tests.fuzz.onnx_files`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.torchless import ROOT

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytestmark = pytest.mark.torch


def test_damaged_files_are_read_or_refused() -> None:
    # In a process of its own: it forks.
    command = [sys.executable, "-m", "tests.fuzz.onnx_files", "--mutants", "200", "--capture-every", "40"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "; 0 findings" in done.stdout
    assert all(f"{kind} " in done.stdout for kind in ("captured", "read", "refused"))
