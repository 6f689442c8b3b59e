"""SIGTERM ends a command like Ctrl-C: temporary files are removed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Terminated(BaseException):
    """The process received SIGTERM."""


class Interrupted(KeyboardInterrupt):
    """The process received SIGINT.

    A class of its own: where a KeyboardInterrupt itself passes through code that is executed from a string, as
    dataclasses and torch.fx do, Python ends by the signal whatever exit code the program has.
    """


class Interruption:
    """The signal that has arrived.

    The exception that a signal raises is lost where it meets code that ignores every exception, as destructors and
    callbacks do.
    """

    def __init__(self) -> None:
        self._arrived: type[BaseException] | None = None
        self._held = False

    def arrive(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal: raises `Interrupted` or `Terminated`."""
        self._arrived = Terminated if number == signal.SIGTERM else Interrupted
        if not self._held:
            raise self._arrived

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While active, a signal waits; it is raised at the end. For what has to be done whole or not at all."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()

    def check(self) -> None:
        """Raises the exception of a signal that has arrived again."""
        if self._arrived is not None:
            raise self._arrived


@contextlib.contextmanager
def terminated_in_order() -> Iterator[Interruption]:
    """While active, SIGINT and SIGTERM raise `Interrupted` and `Terminated` in the main thread.

    Does nothing in another thread, or where Ctrl-C is ignored or has a handler already.
    """
    interruption = Interruption()
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            _handle(signal.SIGTERM, interruption, stack)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                _handle(signal.SIGINT, interruption, stack)
        yield interruption


def _handle(number: signal.Signals, interruption: Interruption, stack: contextlib.ExitStack) -> None:
    before = signal.signal(number, interruption.arrive)
    stack.callback(signal.signal, number, before if before is not None else signal.SIG_DFL)
