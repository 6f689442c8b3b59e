"""A process that answers requests (tests/support/torchless.py has the way of messages), with a limit of time."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.torchless import ROOT, receive, send

# Resident memory beyond which a process is replaced.
_MEMORY = 3 << 30


class Process:
    """The process of a worker: `python -m module arguments…`."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", module, *arguments]
        environment = os.environ | {
            "OMP_WAIT_POLICY": "passive",
            "OMP_NUM_THREADS": "2",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )

    def ask(self, command: str, *arguments: Any, seconds: float) -> Any:
        """Raises EOFError when the process dies, TimeoutError when it takes too long; it is of no use afterwards."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, (command, arguments))
        except BrokenPipeError:
            raise EOFError from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError
        return receive(self._process.stdout)

    def full(self) -> bool:
        """Whether its memory has grown so much that another should go on."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") > _MEMORY
        return False

    def close(self) -> None:
        """Ends the process and those that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
