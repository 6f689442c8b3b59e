"""Compiler processes: never longer than what they work for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aotpack.building.processes import ProcessGroup
from aotpack.errors import CompileError

# Starts a process of its own, as g++ starts cc1plus, and both write where they can be found.
SLEEPS = ("/bin/sh", "-c", 'sh -c "echo \\$\\$ >> pids; sleep 600" & echo $$ >> pids; wait')


def pids(folder: Path, count: int) -> list[int]:
    """Those that the commands have written, once there are `count`."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            found = (folder / "pids").read_text().split()
            if len(found) == count:
                return [int(pid) for pid in found]
        time.sleep(0.01)
    raise AssertionError("the commands did not start")


def wait_until_gone(found: list[int]) -> None:
    deadline = time.monotonic() + 60
    left = list(found)
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if _alive(pid)]
        time.sleep(0.01)
    assert not left


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie is dead; in a container there may be none that waits for it.
    return state not in "ZX"


def test_runs_and_reports(tmp_path: Path) -> None:
    group = ProcessGroup()
    done = group.run(
        ["/bin/sh", "-c", "pwd; echo $HERE; echo bad >&2; exit 3"], cwd=tmp_path, environment={"HERE": "x"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\nx\n", "bad\n")
    # Without standard input, and after the first one again.
    assert group.run(["cat"], cwd=tmp_path).stdout == ""
    with pytest.raises(FileNotFoundError):
        group.run(["no-such-program"], cwd=tmp_path)
    assert group.run(["true"], cwd=tmp_path).returncode == 0


def test_many_at_once(tmp_path: Path) -> None:
    group, codes = ProcessGroup(), []

    def work(code: int) -> None:
        for _ in range(20):
            codes.append(group.run(["/bin/sh", "-c", f"exit {code}"], cwd=tmp_path).returncode - code)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 80


def test_an_error_kills_all_and_nothing_starts_afterwards(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work(group: ProcessGroup) -> None:
        try:
            group.run(SLEEPS, cwd=tmp_path)
        except CompileError as error:
            errors.append(error)

    group = ProcessGroup()
    threads = [threading.Thread(target=work, args=(group,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    found = pids(tmp_path, 4)
    with pytest.raises(KeyboardInterrupt), group:
        raise KeyboardInterrupt
    for thread in threads:
        thread.join(60)
    wait_until_gone(found)
    assert len(errors) == 2
    with pytest.raises(CompileError, match="interrupted"):
        group.run(["true"], cwd=tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_they_die_with_the_process(number: signal.Signals, tmp_path: Path) -> None:
    # From a thread that has ended, and with a fork that lives on and would hold a pipe open.
    script = f"""
import os, sys, threading, time
from aotpack.building.processes import ProcessGroup
group = ProcessGroup()
threading.Thread(target=group.run, args=({SLEEPS!r},), kwargs=dict(cwd=".")).start()
while not os.path.exists("pids"):
    time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    open("child", "w").write(str(os.getpid()))
    time.sleep(600)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    found = pids(tmp_path, 2)
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        time.sleep(0.01)
    process.send_signal(number)
    if number == signal.SIGINT:
        # Python then joins its threads; a second Ctrl-C ends that.
        time.sleep(0.3)
        process.send_signal(number)
    process.wait(60)
    child = int((tmp_path / "child").read_text())
    try:
        wait_until_gone(found)
        assert _alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
