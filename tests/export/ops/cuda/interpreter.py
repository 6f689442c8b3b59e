"""Runs a program of this folder with Triton's interpreter in place of its compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from aotpack.export.ops.cuda.launch import Launch

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


def launched(call: Launch, calls: list[Any] | None = None) -> Tensor:
    """Runs a kernel in the interpreter of this process; adds it to `calls`. What it does not write to is nan."""
    if calls is not None:
        calls.append(call.kernel)
    result: Tensor = call.arguments["out"]
    result.fill_(float("nan"))
    call.kernel[tuple(int(size) for size in call.grid)](**call.arguments)
    return result
