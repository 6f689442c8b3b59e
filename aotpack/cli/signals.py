"""SIGTERM ends a command like Ctrl-C: temporary files are removed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Terminated(BaseException):
    """The process received SIGTERM."""


@contextlib.contextmanager
def terminated_in_order() -> Iterator[None]:
    """While active, SIGTERM raises `Terminated` in the main thread. Does nothing in another thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
