"""Constants are computed while code is generated; archives are the same as those of builds that do not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpack.archive import ArchiveReader, ConstantWriter
from aotpack.archive.layout import ROOM_NAME
from aotpack.errors import LoweringError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.driver import build, early_constants
from aotpack.export.driver.early_constants import EarlyConstants
from aotpack.export.weights.constant_table import Row
from aotpack.runtime.packing.pack_folder import pack_folder
from aotpack.runtime.packing.unpack import unpack

Build = Callable[[str], Path]


class Net(torch.nn.Module):
    """Packed weights, plain ones, a folded constant, and state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(40, 70), torch.nn.Linear(70, 5)
        self.register_buffer("table", torch.randn(9, 5))
        self.register_buffer("calls", torch.zeros(3))
        self.calls: torch.Tensor
        self.table: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return (
            self.second(torch.relu(self.first(x))) + torch.softmax(self.table.T @ self.table, 1).sum(0) + self.calls[0]
        )


@pytest.fixture
def built(cache_dir: Path, tmp_path: Path) -> Build:
    def run(name: str) -> Path:
        options = BuildOptions(cache_dir=cache_dir, sources=True)
        return build_archive(aot_export(Net().eval(), (torch.ones(2, 40),)), tmp_path / name, options=options).path

    return run


@pytest.fixture(params=[1, 1 << 40], ids=["room", "plain"], autouse=True)
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """From how many bytes of constants on archives have a room."""
    monkeypatch.setattr(early_constants, "_LARGE", request.param)
    return bool(request.param == 1)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many constants each build has taken over."""
    counts: list[int] = []
    of = EarlyConstants.of

    def counted(self: EarlyConstants, rows: Any) -> ConstantWriter[int]:
        writer = of(self, rows)
        counts.append(len(writer))
        return writer

    monkeypatch.setattr(EarlyConstants, "of", counted)
    return counts


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds that wait for all constants that can be early."""
    stop = EarlyConstants._stop

    def wait(self: EarlyConstants) -> None:
        self._thread.join()
        stop(self)

    monkeypatch.setattr(EarlyConstants, "_stop", wait)


@pytest.mark.usefixtures("patient")
def test_archives_are_those_of_builds_without(
    built: Build, taken: list[int], large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = built("early.aotpack").read_bytes()
    with ArchiveReader(tmp_path / "early.aotpack") as reader:
        reader.verify()
        assert (reader.manifest.files[0].path == ROOM_NAME) is large
        # The sum of products is left to later.
        assert 4 <= taken[0] < len(reader.manifest.constants)
    monkeypatch.setattr(build, "can_be_early", lambda _: False)
    assert built("late.aotpack").read_bytes() == early
    assert len(taken) == 1


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("wrong", range(4))
def test_what_turns_out_otherwise_is_taken_back(
    wrong: int, built: Build, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = built("right.aotpack").read_bytes()
    modules = early_constants._modules

    def otherwise(units: Any) -> Any:
        ((unit, program, module),) = modules(units)
        rest = [constant for index, constant in enumerate(module.constants) if index != wrong]
        return [(unit, program, early_constants._Expected(tuple(rest)))]

    monkeypatch.setattr(early_constants, "_modules", otherwise)
    assert built("wrong.aotpack").read_bytes() == expected
    assert taken[1] < taken[0]


def test_a_build_that_is_faster_does_the_rest(built: Build, taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    lowered, value = threading.Event(), Row.value
    lower = build.lower_all

    def slow(row: Row) -> torch.Tensor:
        if threading.current_thread().name == "aotpack-early-constants":
            assert lowered.wait(60)
        return value(row)

    def lowering(*args: Any, **options: Any) -> Any:
        result = lower(*args, **options)
        threading.Timer(0.2, lowered.set).start()
        return result

    expected = built("a.aotpack").read_bytes()
    monkeypatch.setattr(Row, "value", slow)
    monkeypatch.setattr(build, "lower_all", lowering)
    assert built("b.aotpack").read_bytes() == expected
    assert taken[1] <= 1


def test_torchs_threads_are_left_alone(built: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # Once another thread has set their number, MKL's LU in the main thread waits for ever for threads that do not come.
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    built("a.aotpack")
    assert not numbers


def test_errors_end_the_thread(built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, before = threading.Event(), (torch.get_num_threads(), sys.getswitchinterval())
    value = Row.value

    def note(row: Row) -> torch.Tensor:
        began.set()
        return value(row)

    def fail(*_: Any, **__: Any) -> Any:
        assert began.wait(60)
        raise LoweringError("no code")

    monkeypatch.setattr(Row, "value", note)
    monkeypatch.setattr(build, "lower_all", fail)
    with pytest.raises(LoweringError, match="no code"):
        built("a.aotpack")
    assert not any(thread.name == "aotpack-early-constants" for thread in threading.enumerate())
    assert (torch.get_num_threads(), sys.getswitchinterval()) == before
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_thread_is_the_builds(built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ConstantWriter, "place", full)
    with pytest.raises(OSError, match="No space left"):
        built("a.aotpack")
    assert not list(tmp_path.iterdir())


def test_an_unpacked_archive_is_packed_as_it_was(built: Build, tmp_path: Path) -> None:
    path = built("a.aotpack")
    unpack(path, tmp_path / "folder")
    pack_folder(tmp_path / "folder", tmp_path / "b.aotpack")
    assert (tmp_path / "b.aotpack").read_bytes() == path.read_bytes()
