"""Runs programs of this folder with Triton's interpreter in place of its compiler.

`python -m tests.export.ops.cuda.interpreter` reads names of programs, one a line, and answers with a line of JSON each:
what a program printed if it failed, else null. It imports torch and Triton once; each program runs in a copy of it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from aotpack.export.ops.cuda.launch import Launch

ROOT = Path(__file__).resolve().parents[4]


class Interpreter:
    """A process that runs programs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.export.ops.cuda.interpreter"],
            cwd=ROOT,
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str) -> None:
        """Fails if the program does."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(program, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the process ended with {self._process.wait()}"
        failure = json.loads(answer)
        assert failure is None, failure[-2000:]

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def main() -> None:
    """Serves an `Interpreter`."""
    # Imported before the first copy.
    importlib.import_module("aotpack.export")
    importlib.import_module("triton.language")
    for line in sys.stdin:
        print(json.dumps(_failure(line.strip())), flush=True)


def _failure(program: str) -> str | None:
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = 1
            try:
                importlib.import_module(f"tests.export.ops.cuda.{program}").main()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return None
        output.seek(0)
        return f"{output.read()}\n{program} ended with {os.waitstatus_to_exitcode(status)}"


def launched(call: Launch, calls: list[Any] | None = None) -> Tensor:
    """Runs a kernel in the interpreter of this process; adds it to `calls`. What it does not write to is nan."""
    if calls is not None:
        calls.append(call.kernel)
    result: Tensor = call.arguments["out"]
    result.fill_(float("nan"))
    return interpreted(call)


def interpreted(call: Launch) -> Tensor:
    """Runs a kernel in the interpreter of this process; returns its `out`."""
    from aotpack.export.ops.cuda.launch import values

    call.kernel[tuple(int(size) for size in call.grid)](**values(call))
    result: Tensor = call.arguments["out"]
    return result


if __name__ == "__main__":
    main()
