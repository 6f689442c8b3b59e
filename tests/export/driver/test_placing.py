"""Constants are computed and written while compilers work, and a build that fails does not go on with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import aotpack
from aotpack.errors import BuildError, CompileError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.driver import build, placing
from aotpack.export.driver.placing import PlacedConstants, beside
from aotpack.export.weights.constant_table import Row


def _net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()


@pytest.fixture
def built(cache_dir: Path, tmp_path: Path) -> Callable[[], Path]:
    def run() -> Path:
        options = BuildOptions(cache_dir=cache_dir)
        return build_archive(aot_export(_net(), (torch.ones(2, 8),)), tmp_path / "a.aotpack", options=options).path

    return run


def test_constants_are_placed_while_code_compiles(built: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    placed, compile_modules, layout = threading.Event(), build.compile_modules, placing.place_constants

    def compiled(*args: Any) -> Any:
        assert placed.wait(60), "constants wait for the compiler"
        return compile_modules(*args)

    def laid_out(*args: Any, **options: Any) -> Any:
        result = layout(*args, **options)
        placed.set()
        return result

    monkeypatch.setattr(build, "compile_modules", compiled)
    monkeypatch.setattr(build, "place_constants", laid_out)
    x = torch.randn(2, 8)
    torch.testing.assert_close(torch.from_dlpack(aotpack.load(built())(x)), _net()(x).detach())


def test_a_compiler_that_fails_ends_the_work_on_constants(
    built: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, failed, values = threading.Event(), threading.Event(), []
    value = Row.value

    def slow(row: Row) -> torch.Tensor:
        values.append(row.constant.name)
        begun.set()
        assert failed.wait(60)
        return value(row)

    def fail(*_: Any) -> Sequence[Any]:
        assert begun.wait(60)
        # Set when this error has left the block.
        threading.Timer(0.2, failed.set).start()
        raise CompileError("the compiler failed")

    monkeypatch.setattr(Row, "value", slow)
    monkeypatch.setattr(build, "compile_modules", fail)
    with pytest.raises(CompileError, match="the compiler failed"):
        built()
    assert len(values) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [CompileError("broken"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_thread_ends_with_the_block(error: BaseException) -> None:
    began, ended = threading.Event(), threading.Event()

    def place(stopped: Callable[[], bool]) -> PlacedConstants:
        began.set()
        while not stopped():
            ended.wait(0.01)
        ended.set()
        raise BuildError("the build was interrupted")

    def block() -> None:
        with beside(place):
            assert began.wait(60)
            raise error

    with pytest.raises(type(error)):
        block()
    assert ended.is_set()


def test_an_error_of_the_constants_is_the_builds(built: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(placing.ConstantWriter, "place", full)
    with pytest.raises(OSError, match="No space left"):
        built()
