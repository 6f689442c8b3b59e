"""Runs a program of this folder with Triton's interpreter in place of its compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def interpret(program: str) -> None:
    """Fails if the program does."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.export.ops.cuda.{program}"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
