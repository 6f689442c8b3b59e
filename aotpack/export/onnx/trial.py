"""Runs code in a fork, whose end is not that of this process.

The checks and the type inference of onnx are C++, and with some malformed models read memory by numbers of the file.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from os import _exit

from aotpack.export.onnx.base.errors import OnnxError

# A model of ten thousand nodes takes a second.
_SECONDS = 120.0


def bytes_from_fork(call: Callable[[], bytes], what: str) -> bytes:
    """What `call` returns in a fork.

    Raises:
        OnnxError: the fork was ended by a signal, or did not end; or what it raised.
    """
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # That other threads may hold locks. The fork calls onnx alone; where it waits for ever, that is noticed.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _call_and_exit(call, write_end)
    os.close(write_end)
    answer = _read(read_end)
    if answer is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise OnnxError(f"{what} has no end with this model")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise OnnxError(f"{what} ends with {signal.Signals(os.WTERMSIG(status)).name}: the model is invalid")
    if answer[:1] == b"+":
        return answer[1:]
    if answer[:1] == b"-":
        # Of our own process: what is pickled there is no data of the file.
        text, hint = pickle.loads(answer[1:])
        raise OnnxError(text, hint=hint)
    # Another error; it comes again.
    return call()


def _call_and_exit(call: Callable[[], bytes], to: int) -> None:
    try:
        # Nothing of it is to be seen, a report of a crash neither.
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, signal.SIG_DFL)
        with os.fdopen(to, "wb") as file:
            try:
                file.write(b"+" + call())
            except OnnxError as error:
                file.write(b"-" + pickle.dumps((str(error.args[0]), error.hint)))
    finally:
        _exit(0)


def _read(end: int) -> bytes | None:
    """All that is written to the other end until it is closed; None if it is not after some time."""
    parts: list[bytes] = []
    last = time.monotonic() + _SECONDS
    with os.fdopen(end, "rb", buffering=0) as file:
        while True:
            if not select.select([file], [], [], max(last - time.monotonic(), 0))[0]:
                return None
            part = file.read(1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
