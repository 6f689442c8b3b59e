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
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
_OUTPUTS = ("stdout", "stderr")
# What programs that build archives import.
BUILDING = ("torch._inductor.compile_fx", "aotpack.export")


@dataclass(frozen=True)
class Started:
    """A program that a server has started; `pid` is that of its process."""

    python: WarmPython
    pid: int
    arguments: tuple[str, ...]
    folder: Path

    def running(self) -> bool:
        return self.python.ask("poll", self.pid) is None

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Waits for its end. Called once."""
        code = self.python.ask("wait", self.pid)
        texts = [(self.folder / name).read_text() for name in _OUTPUTS]
        shutil.rmtree(self.folder)
        return subprocess.CompletedProcess([sys.executable, *self.arguments], code, *texts)


class WarmPython:
    """The server, with `modules` imported in `environment`. One thread at a time may use it."""

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

    def start(self, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Started:
        """Starts `python -m MODULE …`, `python -c CODE …` or `python SCRIPT …`, with the output captured and nothing at
        standard input.
        """
        words = tuple(str(argument) for argument in arguments)
        folder = Path(tempfile.mkdtemp())
        # Here, since it may be killed before it opens them.
        for name in _OUTPUTS:
            (folder / name).touch()
        request = {
            "arguments": words,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "outputs": [str(folder / name) for name in _OUTPUTS],
        }
        return Started(self, self.ask("start", request), words, folder)

    def run(
        self, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Starts a program and waits for its end."""
        return self.start(*arguments, cwd=cwd, env=env).wait()

    def ask(self, command: str, argument: Any) -> Any:
        """Has the server do something."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, argument]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the server of warm interpreters has ended"
        return json.loads(answer)


@cache
def warm_python() -> WarmPython:
    """The server of this process for programs that build archives."""
    return WarmPython()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    """Answers requests until there are no more. Returns in the children too: what they were asked to run is done."""
    ended: dict[int, int] = {}
    for line in iter(requests.readline, ""):
        command, argument = json.loads(line)
        if command == "start":
            answer: int | None = os.fork()
            if answer == 0:
                _become(argument)
                return
        else:
            if argument not in ended:
                pid, status = os.waitpid(argument, os.WNOHANG if command == "poll" else 0)
                if pid:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(argument)
        answers.write(f"{json.dumps(answer)}\n")
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
    # The server's folder for temporary files would stay that of the program.
    tempfile.tempdir = None
    importlib.invalidate_caches()
    first, *rest = request["arguments"]
    if first == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
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
