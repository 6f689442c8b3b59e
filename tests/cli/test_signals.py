"""Signals that end a command."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from aotpack.cli.signals import Terminated, terminated_in_order


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)], ids=str
)
def test_an_exception_that_is_lost_is_raised_again(number: signal.Signals, error: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with terminated_in_order() as interruption:
        interruption.check()
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), number)
        with pytest.raises(error):
            interruption.check()
    assert signal.getsignal(number) == before


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with terminated_in_order() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            interruption.check()
    finally:
        signal.signal(signal.SIGINT, before)
