"""Compiler processes that never outlive what they work for.

All of a build's compilers are in one process group, led by a shell that waits for the end of a pipe. Only this process
holds the other end of the pipe: when it dies, however that happens, the pipe ends and the shell kills the group. (A
parent-death signal of Linux would not do: it follows the thread that started the compiler, and setting it needs code
between fork and exec, which is not safe beside torch's threads.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from aotpack.errors import CompileError

_LEADER = ("/bin/sh", "-c", "read -r _; kill -KILL 0")

_groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


class ProcessGroup:
    """Runs commands that are killed together: by `kill`, or when this process dies. Safe to use from several threads.

    As a context manager, it kills what still runs when the block ends by an exception. Otherwise commands go on, and
    more may be started.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leader: subprocess.Popen[bytes] | None = None
        self._running = 0
        self._killed = False
        _groups.add(self)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path,
        environment: Mapping[str, str] | None = None,
        source: Callable[[], str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end.

        Its standard input is what `source` returns, which is called when the command runs already; without, none.

        Raises:
            CompileError: the group was killed.
            OSError: the command cannot be started.
        """
        process = self._start(command, cwd, environment, subprocess.DEVNULL if source is None else subprocess.PIPE)
        try:
            output, errors = process.communicate(None if source is None else source())
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            self._ended()
        if self._killed and process.returncode < 0:
            raise CompileError("the build was interrupted")
        return subprocess.CompletedProcess(list(command), process.returncode, output, errors)

    def kill(self) -> None:
        """Kills what runs and everything that it started. Nothing can be started afterwards."""
        with self._lock:
            self._killed = True
            self._dismiss()

    def _start(
        self, command: Sequence[str], cwd: str | Path, environment: Mapping[str, str] | None, standard_input: int
    ) -> subprocess.Popen[str]:
        with self._lock:
            if self._killed:
                raise CompileError("the build was interrupted")
            if self._leader is not None and self._leader.poll() is not None:
                self._leader = None
            if self._leader is None:
                self._leader = subprocess.Popen(
                    _LEADER,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=None if environment is None else {**os.environ, **environment},
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=self._leader.pid,
            )
            self._running += 1
            return process

    def _ended(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._dismiss()

    def _dismiss(self) -> None:
        """Kills the leader and, with it, its group."""
        leader, self._leader = self._leader, None
        if leader is None:
            return
        # Until it is waited for, its number belongs to nothing else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, signal.SIGKILL)
        assert leader.stdin is not None
        leader.stdin.close()
        leader.wait()

    def _forget(self) -> None:
        """In a child by fork: the pipe and what it guards are the parent's."""
        leader, self._leader = self._leader, None
        self._lock = threading.Lock()
        self._killed = True
        if leader is not None:
            assert leader.stdin is not None
            leader.stdin.close()
            # Not this process's child: nothing to wait for.
            leader.returncode = 0


def _forget_all() -> None:
    for group in list(_groups):
        group._forget()


os.register_at_fork(after_in_child=_forget_all)
