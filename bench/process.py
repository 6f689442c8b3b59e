"""Starting the processes that the benches measure."""

import contextlib
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
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
    """Ours, with `threads` OpenMP threads and every build cache in `cache`; bytecode of modules is kept, as it is for
    users.
    """
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "AOTPACK_CACHE_DIR": str(cache / "aotpack"),
        "XDG_CACHE_HOME": str(cache / "xdg"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
    }


def free_memory(size: int) -> None:
    """Takes `size` bytes of memory and frees them, so that the system holds that much.

    A virtual machine may hand free memory back to its host, which takes several times as long to give it again as the
    system takes to clear it.
    """
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory[:: mmap.PAGESIZE] = bytes(-(-size // mmap.PAGESIZE))


def build(
    engine: str,
    model: str,
    directory: Path,
    threads: int,
    checkout: Checkout = THIS,
    *,
    limit: float | None = None,
    jobs: int = 1,
) -> float:
    """Runs bench.build in a fresh process with empty caches; returns its wall time in seconds.

    What `directory` has is removed. WorkerError when it fails, or after `limit` seconds. Where `jobs` builds run at a
    time, TorchInductor shares the processors among them.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    began = time.perf_counter()
    env = environment(threads, directory / "build-cache")
    if jobs > 1:
        env["TORCHINDUCTOR_COMPILE_THREADS"] = str(max(2, 2 * (os.cpu_count() or 1) // jobs))
    with (directory / "stderr.txt").open("w+") as errors:
        process = subprocess.Popen(
            [str(checkout.python), "-m", "bench.build", engine, model, str(directory)],
            cwd=checkout.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # A group of its own, which is stopped with the processes that the build starts.
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"building {model} with {engine} exceeds {limit:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        errors.seek(0)
        if status:
            raise WorkerError(f"building {model} with {engine} failed:\n{errors.read()[-3000:]}")
    return time.perf_counter() - began


class Worker:
    """A measured process. Between answers it waits on its standard input and uses no processor time."""

    def __init__(
        self,
        engine: str,
        artifact: str,
        inputs: list[str],
        threads: int,
        cache: Path,
        checkout: Checkout = THIS,
        *,
        limit: float | None = None,
    ) -> None:
        """`limit`: seconds after which an answer that is not there ends the process; None for no limit."""
        self.limit = limit
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
        with self._limited():
            for line in self.process.stdout:
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
            self.process.wait()
        self.errors.seek(0)
        raise WorkerError(f"{self.name} ended with {self.process.returncode}:\n{self.errors.read()[-3000:]}")

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        timer = threading.Timer(self.limit, self.process.kill) if self.limit is not None else None
        if timer is not None:
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Ends the process and waits for it."""
        if self.process.poll() is None:
            try:
                self.process.communicate("quit\n", timeout=30)
            except (subprocess.TimeoutExpired, BrokenPipeError):
                self.process.kill()
                self.process.wait()
        self.errors.close()
