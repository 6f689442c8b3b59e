"""The state of a context in `.safetensors` files, and calls that change it as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.archive.safetensors import SafetensorsFile
from aotpack.archive.safetensors_writer import write_safetensors
from aotpack.errors import ArchiveIOError, ExecutionError, InputError, WeightsError, WeightsNotFoundError
from aotpack.spec import DType

Archive = Callable[[str], Path]
ONE = np.ones(1, np.float32)
ROOT = Path(__file__).parents[2]


def state(context: Any) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in context.state().items()}


def test_a_run_resumes_bit_for_bit(archive: Archive, tmp_path: Path) -> None:
    model = aotpack.load(archive("trainer"))
    first = model.context(seed=1)
    for _ in range(3):
        first(ONE)
    first.save_state(tmp_path / "state.safetensors")
    second = model.context()
    second.load_state(str(tmp_path / "state.safetensors"))
    assert state(second) == state(first)
    for _ in range(3):
        assert second(ONE).tolist() == first(ONE).tolist()
    assert os.listdir(tmp_path) == ["state.safetensors"]


def test_files_of_the_python_reader_and_writer(archive: Archive, tmp_path: Path) -> None:
    context = aotpack.load(archive("trainer")).context()
    context.save_state(tmp_path / "a")
    with SafetensorsFile(tmp_path / "a") as file:
        assert file.spec("total") == (DType.FLOAT32, (4,))
        assert file.metadata["format"] == "pt"
    values = {"total": np.arange(4, dtype=np.float32), "steps": np.full(1, 8, np.float32)}
    write_safetensors(
        tmp_path / "b", {name: (DType.FLOAT32, value.shape) for name, value in values.items()}, lambda n: values[n].data
    )
    context.load_state(tmp_path / "b")
    assert state(context) == {"total": [0, 1, 2, 3], "steps": [8]}


def test_files_of_safetensors(archive: Archive, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    context = aotpack.load(archive("trainer")).context()
    context(ONE)
    context.save_state(tmp_path / "a")
    loaded = safetensors.load_file(tmp_path / "a")
    assert {name: value.tolist() for name, value in loaded.items()} == state(context)
    safetensors.save_file({"total": torch.arange(4.0), "steps": torch.ones(1)}, tmp_path / "b")
    context.load_state(tmp_path / "b")
    assert state(context) == {"total": [0, 1, 2, 3], "steps": [1]}


def test_what_does_not_match_is_refused(archive: Archive, tmp_path: Path) -> None:
    context = aotpack.load(archive("trainer")).context()
    context(ONE)
    before = state(context)
    write_safetensors(
        tmp_path / "part",
        {"steps": (DType.FLOAT32, (1,)), "x": (DType.BOOL, ())},
        lambda n: b"\1" * (4 if n == "steps" else 1),
    )
    with pytest.raises(WeightsError, match="'total' is missing; there is no 'x'"):
        context.load_state(tmp_path / "part")
    assert state(context) == before
    context.load_state(tmp_path / "part", strict=False)
    assert state(context)["total"] == before["total"]
    with pytest.raises(WeightsNotFoundError):
        context.load_state(tmp_path / "absent")
    with pytest.raises(ValueError, match="strict"):
        context.load_state({}, strict=False)
    (tmp_path / "short").write_bytes(b"1234")
    with pytest.raises(WeightsError, match="4 bytes are not a safetensors file"):
        context.load_state(tmp_path / "short")
    with pytest.raises(WeightsNotFoundError):
        context.save_state(tmp_path / "no" / "state")
    with pytest.raises(ArchiveIOError):
        context.save_state(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_folder_that_is_read_only(archive: Archive, tmp_path: Path) -> None:
    context = aotpack.load(archive("trainer")).context()
    context.save_state(tmp_path / "state")
    old = (tmp_path / "state").read_bytes()
    context(ONE)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ArchiveIOError, match="Permission denied"):
            context.save_state(tmp_path / "state")
        assert (tmp_path / "state").read_bytes() == old
    finally:
        tmp_path.chmod(0o700)


def test_a_call_that_fails_in_the_middle(archive: Archive) -> None:
    model = aotpack.load(archive("trainer"))
    plain, atomic, expected = (model.context(seed=1, atomic=atomic) for atomic in (False, True, True))
    plain(ONE)
    atomic(ONE)
    expected(ONE)
    before = state(atomic)
    for context in (plain, atomic):
        with pytest.raises((InputError, ExecutionError), match="out of range"):
            context(-ONE)
    assert state(plain) != before
    assert state(atomic) == before
    # The random generator as well.
    assert atomic(ONE).tolist() == expected(ONE).tolist()
    fresh = model.context(seed=1, atomic=True)
    with pytest.raises((InputError, ExecutionError), match="out of range"):
        fresh(-ONE)
    assert state(fresh) == {"total": [0] * 4, "steps": [0]}
    assert fresh(ONE).tolist() == model.context(seed=1)(ONE).tolist()


def test_outputs_that_are_not_finite(archive: Archive) -> None:
    context = aotpack.load(archive("trainer")).context(check_finite=True)
    context(ONE)
    before = state(context)
    for bad in (np.nan, np.inf):
        with pytest.raises(ExecutionError, match="output 'loss' is not finite"):
            context(np.full(1, bad, np.float32))
        assert state(context) == before
    context(ONE)
    assert state(context)["steps"] == [2]


def test_threads_that_step_save_and_fail(archive: Archive, tmp_path: Path) -> None:
    context = aotpack.load(archive("trainer")).context(atomic=True)
    path = tmp_path / "state"
    context.save_state(path)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                context(ONE)
                with pytest.raises(Exception, match="out of range"):
                    context(-ONE)
                context.save_state(path)
                with SafetensorsFile(path) as file:
                    assert file.bytes("steps").nbytes == 4
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert state(context)["steps"] == [40]
    context.load_state(path)
    assert state(context)["steps"] == [40]


def test_processes_that_are_killed_leave_a_whole_checkpoint(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "state"
    command = [sys.executable, "-m", "tests.support.killed_steps", str(archive("trainer")), str(path), "50"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    steps, progressed = map(int, result.stdout.split())
    assert steps > 20
    assert progressed > 10
