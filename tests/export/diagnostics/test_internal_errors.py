"""No exception leaves a build but errors of the package: faults are injected at every stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.errors import AotpackError, InternalError, OutOfMemoryError, PassError
from aotpack.export import BuildOptions, Program, aot_export, build_archive, load_exported
from aotpack.export.diagnostics.internal_errors import place_of, reported
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.passes.runner import run_passes

pytestmark = pytest.mark.torch

_CAPTURE = "aotpack.export.capture"
_BUILD = "aotpack.export.driver.build"
_PREPARE = "aotpack.export.driver.prepare"
_CPU = "aotpack.export.backends.cpu.backend"
_STAGES = {
    f"{_CAPTURE}.models.parse": "capture",
    f"{_CAPTURE}.forward.functional_graph": "capture",
    f"{_CAPTURE}.forward.make_program": "capture",
    f"{_CAPTURE}.forward.probed": "capture",
    f"{_PREPARE}.units_of": "build",
    f"{_PREPARE}.run_passes": "passes",
    f"{_PREPARE}.share_state": "passes",
    f"{_CPU}.lower": "lower",
    f"{_CPU}.compile_module": "compile",
    f"{_BUILD}.pack": "pack",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x).relu()


@pytest.fixture(scope="module")
def program() -> Program:
    return aot_export(Net().eval(), (torch.ones(1, 3),))


@pytest.fixture
def built(program: Program, tmp_path: Path, cache_dir: Path) -> Callable[..., None]:
    """Captures the model again where that is asked for, and builds it."""

    def run(stage: str = "build", **options: Any) -> None:
        made = aot_export(Net().eval(), (torch.ones(1, 3),)) if stage == "capture" else program
        build_archive(made, tmp_path / "model.aotpack", options=BuildOptions(cache_dir=cache_dir), **options)

    return run


def _failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("where", _STAGES)
def test_every_stage(where: str, built: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = KeyError("k")
    monkeypatch.setattr(where, _failing(error))
    with pytest.raises(InternalError, match="KeyError: 'k'") as caught:
        built(_STAGES[where])
    assert "please report" in (caught.value.hint or "")
    assert caught.value.__cause__ is error
    assert caught.value.stage.partition(" ")[0] == _STAGES[where]
    assert not (tmp_path / "model.aotpack").exists()
    interrupted = KeyboardInterrupt()
    monkeypatch.setattr(where, _failing(interrupted))
    with pytest.raises(KeyboardInterrupt):
        built(_STAGES[where])


@pytest.mark.parametrize(
    "error", [AssertionError(), RecursionError("deep"), ValueError("a\n\nadvice"), StopIteration()]
)
def test_unforeseen_errors_ask_for_a_report(error: Exception) -> None:
    @reported("pack")
    def fail() -> None:
        raise error

    with pytest.raises(InternalError, match=type(error).__name__) as caught:
        fail()
    assert "advice" not in str(caught.value)
    assert caught.value.__cause__ is error
    assert "please report" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), PermissionError("no"), SystemExit(3), PassError("known")]
)
def test_errors_with_a_meaning_of_their_own_stay(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, reported("pack"):
        raise error
    assert caught.value is error


def test_code_generation_asks_for_a_report(built: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_aot", _failing(TypeError("inner")))
    with pytest.raises(AotpackError, match="TypeError: inner") as caught:
        built()
    assert "please report" in (caught.value.hint or "")


def test_a_failing_pass_names_operator_module_and_line() -> None:
    def breaking(program: Program) -> Program:
        for node in Rewriter(program).nodes(torch.ops.aten.relu.default):
            raise LookupError(f"no rule for {node.name}")
        return program

    with pytest.raises(PassError, match="pass breaking failed: LookupError: no rule for relu") as caught:
        run_passes(aot_export(nn.Sequential(Net()).eval(), (torch.ones(1, 3),)), [breaking])
    text = str(caught.value)
    assert "aten.relu of module 0" in text
    assert f"{__file__}:" in text and "return self.lin(x).relu()" in text
    assert "please report" in (caught.value.hint or "")
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_loaded_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.export.save(torch.export.export(Net().eval(), (torch.ones(1, 3),)), tmp_path / "net.pt2")
    monkeypatch.setattr(f"{_CAPTURE}.exported.restore_guards", _failing(KeyError("k")))
    with pytest.raises(InternalError, match="KeyError") as caught:
        load_exported(tmp_path / "net.pt2")
    assert "please report" in (caught.value.hint or "")


def test_errors_of_callbacks_are_the_callers(built: Callable[..., None]) -> None:
    cancelled = RuntimeError("cancelled by the user")
    for wanted in ("passes", "lower"):

        def progress(phase: str, seconds: float | None, detail: str, wanted: str = wanted) -> None:
            if phase == wanted:
                raise cancelled

        with pytest.raises(RuntimeError) as caught:
            built(progress=progress)
        assert caught.value is cancelled


def test_torch_without_memory() -> None:
    with pytest.raises(OutOfMemoryError), reported("pack"):
        torch.empty(1 << 60, dtype=torch.uint8)


def test_a_place_is_looked_for_in_causes_too() -> None:
    error = ValueError("outer")
    assert str(place_of(error)) == ""
    with pytest.raises(KeyError) as caught:
        raise KeyError("k")
    error.__cause__ = caught.value
    assert "test_internal_errors.py" in place_of(error).line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((Net, (torch.ones(1, 3),)), "the class Net"),
        ((3, (torch.ones(1, 3),)), "the model is a int"),
        ((Net(), 3), "args must be a tuple"),
        ((Net(), None), "args must be a tuple"),
        ((Net(), {"x": torch.ones(1, 3)}), "args must be a tuple"),
        ((Net(), (), [torch.ones(1, 3)]), "kwargs must be a dict"),
    ],
)
def test_arguments_of_the_wrong_kind(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(AotpackError, match=message) as caught:
        aot_export(*given)
    assert caught.value.hint
