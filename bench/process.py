"""Starting the processes that the benches measure."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Checkout:
    """A checkout of this project and the interpreter that has its package installed."""

    root: Path
    python: Path

    @classmethod
    def at(cls, root: Path) -> "Checkout":
        """The checkout in `root` with the virtual environment that `make setup` creates there."""
        root = root.resolve()
        python = root / ".venv" / "bin" / "python"
        if not python.exists():
            raise FileNotFoundError(f"{root} has no .venv/bin/python: run `make setup` there")
        return cls(root, python)


THIS = Checkout(ROOT, Path(sys.executable))


class WorkerError(RuntimeError):
    """A build or a worker failed; the message ends with what it wrote to standard error."""


def environment(threads: int, cache: Path) -> dict[str, str]:
    """Ours, with `threads` OpenMP threads and every build cache in `cache`."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "AOTPACK_CACHE_DIR": str(cache / "aotpack"),
        "XDG_CACHE_HOME": str(cache / "xdg"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
    }


def build(engine: str, model: str, directory: Path, threads: int, checkout: Checkout = THIS) -> float:
    """Runs bench.build in a fresh process with empty caches; returns its wall time in seconds."""
    directory.mkdir(parents=True)
    began = time.perf_counter()
    done = subprocess.run(
        [str(checkout.python), "-m", "bench.build", engine, model, str(directory)],
        check=False,
        cwd=checkout.root,
        env=environment(threads, directory / "build-cache"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise WorkerError(f"building {model} with {engine} failed:\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


class Worker:
    """A measured process. Between answers it waits on its standard input and uses no processor time."""

    def __init__(
        self, engine: str, artifact: str, inputs: list[str], threads: int, cache: Path, checkout: Checkout = THIS
    ) -> None:
        self.name = f"{engine} ({Path(artifact).parent.parent.name})"
        cache.mkdir(parents=True, exist_ok=True)
        self.errors = (cache / "stderr.txt").open("w+")
        env = environment(threads, cache)
        # `-c` rather than `-m`: runpy's own imports would count in every engine's start.
        command = [str(checkout.python), "-c", "from bench.worker import main; main()", engine, artifact, str(threads)]
        self.process = subprocess.Popen(
            [*command, str(time.monotonic_ns()), *inputs],
            cwd=checkout.root,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.start: dict[str, float] = self._answer()

    def ask(self, command: str) -> dict[str, Any]:
        """Sends a command and waits for its answer; WorkerError when the process ends instead."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer below says why
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # A library may print to standard output too: answers are the lines that are JSON objects.
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        self.process.wait()
        self.errors.seek(0)
        raise WorkerError(f"{self.name} ended with {self.process.returncode}:\n{self.errors.read()[-3000:]}")

    def close(self) -> None:
        """Ends the process and waits for it."""
        if self.process.poll() is None:
            try:
                self.process.communicate("quit\n", timeout=30)
            except (subprocess.TimeoutExpired, BrokenPipeError):
                self.process.kill()
                self.process.wait()
        self.errors.close()
