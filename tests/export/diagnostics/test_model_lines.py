"""Messages cite lines of the model, hints say only what works, and torch's own output stays off stderr."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import BuildError, CaptureError
from aotpack.export import Program, aot_export, build_archive, load_exported
from aotpack.export.diagnostics import model_lines
from aotpack.export.driver.pipeline import select
from aotpack.export.passes.runner import run_passes
from aotpack.export.tracing import trace
from aotpack.export.weights.identity import share_state
from tests.support.building import Build

pytestmark = pytest.mark.torch


def test_the_files_above_the_model_exist() -> None:
    package = Path(aotpack.__file__).resolve().parents[1]
    for name in model_lines.TRACERS:
        assert (package / name).is_file(), name


class Views(nn.Module):
    """Needs a multiple of 8; each layer under a line of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y.view(x.shape[0], 4, -1, 8).softmax(-1)


def _texts(program: Program) -> list[str]:
    """All that is said of a program: notes, and stacks of its nodes, also after the passes."""
    texts = [note.text for note in program.notes]
    (shared,) = share_state([program])
    after = run_passes(shared, select(()))
    for graph in (program.graph, after.graph):
        lines = [model_lines.of_trace(node.meta.get("stack_trace") or "") for node in graph.nodes]
        texts += [line.full for line in lines if line is not None]
    return texts


def _views(x: Tensor) -> Tensor:
    return x.view(x.shape[0], -1, 8).sum(-1)


@pytest.mark.parametrize("model", [Views(), _views, lambda x: _views(x).relu()])
def test_notes_and_nodes_have_lines_of_the_model(model: Any) -> None:
    program = aot_export(model, (torch.randn(2, 4, 16),), dynamic_shapes={"x": {0: "b", 2: "n"}})
    texts = _texts(program)
    assert any(":" in text for text in texts)
    for text in texts:
        assert "aot_export(" not in text
        assert os.path.dirname(aotpack.__file__) not in text
    assert any("view(" in text for text in texts)


def _asserting(x: Tensor) -> Tensor:
    assert x.sum() > 0 or x.sum() < -1, "the sum"
    return x * 2


def _deciding(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x


def _choosing(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x > 0, (x,))


@pytest.mark.parametrize(
    ("model", "line", "hint"),
    [
        (_asserting, 'assert x.sum() > 0 or x.sum() < -1, "the sum"', "torch._assert_async"),
        (_deciding, "if x.sum() > 0:", "torch.where"),
        (_choosing, "return torch.cond(", "same dtypes"),
    ],
)
def test_data_dependent_models(
    model: Callable[[Tensor], Tensor], line: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CaptureError) as caught:
        aot_export(model, (torch.ones(3),))
    message = str(caught.value)
    assert line in message
    assert f"{__file__}:" in message
    assert "aotpack" + os.sep + "export" not in message
    assert "consider using" not in message
    assert hint in (caught.value.hint or "")
    assert "torch.cond is" not in (caught.value.hint or "")
    assert "or torch.cond" not in (caught.value.hint or "")
    written = capfd.readouterr()
    assert written.out + written.err == ""


def test_the_assert_that_the_hint_recommends(build: Build) -> None:
    def checked(x: Tensor) -> Tensor:
        torch._assert_async(x.sum() > 0, "the sum is not positive")
        return x * 2

    archive = build(checked, (torch.ones(3),))
    assert archive(torch.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(aotpack.errors.ExecutionError, match="the sum is not positive"):
        archive(-torch.ones(3))


def test_torch_export_is_named_only_where_it_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            raise LookupError("no way to trace this")
        return x

    with pytest.raises(CaptureError, match="no way to trace this") as caught:
        aot_export(failing, (torch.ones(3),))
    assert "alone fails too (LookupError: no way to trace this)" in (caught.value.hint or "")
    assert "failing: raise LookupError" in str(caught.value)

    def broken(*_: Any) -> Any:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(trace, "_followed_by_hand", broken)
    with pytest.raises(CaptureError, match="a fault of ours") as caught:
        aot_export(lambda x: x + 1, (torch.ones(3),))
    assert "alone captures this model: please report it" in (caught.value.hint or "")


def test_models_that_exit() -> None:
    def exits(x: Tensor) -> Tensor:
        raise SystemExit(0)

    with pytest.raises(CaptureError, match=r"calls exit\(0\)") as caught:
        aot_export(exits, (torch.ones(3),))
    assert f"{__file__}:" in str(caught.value)


def test_weights_without_values(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = nn.Linear(3, 4)
    program = aot_export(model, (torch.ones(2, 3),))
    with pytest.raises(BuildError, match="meta") as caught:
        build_archive(program, tmp_path / "model.aotpack")
    assert "weights=" in (caught.value.hint or "")
    assert "model.cpu()" not in (caught.value.hint or "")


def _scripted(path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(3, 4)), str(path))


def _saved(path: Path) -> None:
    torch.save(nn.Linear(3, 4).state_dict(), path)


def _pickled(path: Path) -> None:
    torch.save(nn.Linear(3, 4), path, _use_new_zipfile_serialization=False)


def _cut(path: Path) -> None:
    torch.export.save(torch.export.export(nn.Linear(3, 4), (torch.ones(2, 3),)), path)
    path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_scripted, "a TorchScript file"),
        (_saved, "a file from torch.save"),
        (_pickled, "a pickle"),
        (_cut, "incomplete"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.write_text("hello"), "a file of an unknown format"),
        (lambda path: path.mkdir(), "a folder"),
        (lambda path: os.mkfifo(path), "no regular file"),
    ],
)
def test_other_files(
    write: Callable[[Path], None], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pt2"
    write(path)
    capfd.readouterr()
    with pytest.raises(CaptureError, match=f"not an exported program but .*{message}") as caught:
        load_exported(path)
    assert caught.value.hint
    assert capfd.readouterr().err == ""


def _exported() -> torch.export.ExportedProgram:
    return torch.export.export(nn.Linear(3, 4), (torch.ones(2, 3),))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear, "the model is the class Linear, not a module"),
        (None, "the model is a NoneType"),
        (_exported, "is an ExportedProgram.*cannot be called"),
    ],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    model = model() if model is _exported else model
    with pytest.raises(CaptureError, match=message) as caught:
        aot_export(model, (torch.ones(2, 3),))
    assert caught.value.hint
    with pytest.raises(CaptureError, match=f"expects a file, but the path is a {type(model).__name__}"):
        load_exported(model)


def test_lines_of_sizes_that_a_model_fixes(tmp_path: Path) -> None:
    """They are whole also where Dynamo followed the model, without running it."""
    source = "import torch\n\n\ndef call(x, y, z):\n    z = z + 1\n    return x * 2, y.reshape(4, 3) + z.sum()\n"
    path = tmp_path / "fixing.py"
    path.write_text(source)
    scope: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), scope)
    b = aotpack.Dim("b", 1, 8)
    shapes = {name: {0: b} for name in "xyz"}
    with pytest.raises(CaptureError, match="fixes the dim 'b'") as caught:
        aot_export(scope["call"], (torch.ones(4, 2), torch.ones(4, 3), torch.ones(4)), dynamic_shapes=shapes)
    assert f"\n  at {path}:6, in call: return x * 2, y.reshape(4, 3) + z.sum()" in str(caught.value)
