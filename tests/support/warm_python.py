"""Runs Python programs without the seconds that each needs to import torch, the builder or the interpreter of kernels.

A server process imports them once and forks for every program: a process of its own with its own arguments,
environment, folder and output, as a new interpreter would be. Variables that are read when torch or libgomp is loaded
have the server's values.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
# What programs that build archives import.
BUILDING = ("torch._inductor.compile_fx", "aotpack.export")


class WarmPython:
    """The server, with `modules` imported in `environment`. Its programs run one at a time."""

    def __init__(self, modules: Sequence[str] = BUILDING, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *modules],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.kill)

    def run(
        self, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `python -m MODULE …` or `python SCRIPT …`, with the output captured and nothing at standard input."""
        words = [str(argument) for argument in arguments]
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder, name) for name in ("stdout", "stderr")]
            request = {
                "arguments": words,
                "cwd": str(cwd or Path.cwd()),
                "env": dict(os.environ if env is None else env),
                "outputs": [str(output) for output in outputs],
            }
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the server of warm interpreters has ended"
            texts = [output.read_text() for output in outputs]
        return subprocess.CompletedProcess([sys.executable, *words], int(answer), *texts)


@cache
def warm_python() -> WarmPython:
    """The server of this process for programs that build archives."""
    return WarmPython()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    """Answers requests until there are no more. Returns in the children too: what they were asked to run is done."""
    for line in iter(requests.readline, ""):
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
            return
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _become(request: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for descriptor, path in enumerate(request["outputs"], start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.close(nothing)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    importlib.invalidate_caches()
    first, *rest = request["arguments"]
    if first == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(first).resolve().parent)
        sys.argv = request["arguments"]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    # The programs' own standard streams are opened in their place.
    reader, writer = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _serve(reader, writer)
