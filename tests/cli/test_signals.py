"""Signals that end a command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotpack.cli.signals import Terminated, terminated_in_order


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Shells start commands in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


_INTERRUPTED_IN_A_STRING = """
import os, signal, time
from aotpack.cli.signals import terminated_in_order

try:
    with terminated_in_order():
        exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)")
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_the_exit_code_holds_where_a_string_was_executed(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(_INTERRUPTED_IN_A_STRING)
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, timeout=60)
    assert done.returncode == 130
