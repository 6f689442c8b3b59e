"""Operators without a kernel: refused before anything of the model is compiled, all at once, with their places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from aotpack.cli.app import app
from aotpack.errors import UnsupportedOperatorError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.cpu import lower
from aotpack.export.torch_compat.inductor import fallbacks

pytestmark = pytest.mark.torch

# What the operators of `Both` are called in generated code.
_SHIMS = frozenset(["aoti_torch_cpu_cumsum", "aoti_torch_cpu_sort_stable", "aoti_torch_cpu_mm_out"])


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x).cumsum(1)


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Head(), Head()])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = self.heads[0](x) + self.heads[1](x)
        return total, torch.sort(x, dim=0, stable=True).values


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the operators of `_SHIMS` had no kernel."""
    have = lower.supported_shims()
    monkeypatch.setattr(lower, "supported_shims", lambda: have - _SHIMS)


@pytest.mark.usefixtures("without_kernels")
def test_all_operators_at_once_with_module_and_line(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []
    monkeypatch.setattr("aotpack.export.backends.cpu.backend.compile_module", lambda *a, **k: compiled.append(a))
    x = torch.randn(3, 4)
    programs = [
        aot_export(Both().eval(), (x,), entry="first"),
        aot_export(lambda x: x @ x.T, (x,), entry="second"),
        aot_export(nn.ReLU(), (x,), entry="third"),
    ]
    with pytest.raises(UnsupportedOperatorError) as caught:
        build_archive(programs, tmp_path / "model.aotpack", options=BuildOptions(cache_dir=cache_dir))
    error = caught.value
    assert error.operators == ("aten.cumsum", "aten.mm", "aten.sort.stable")
    modules = {(operator, module) for operator, module, _ in error.uses}
    assert modules >= {
        ("aten.cumsum", "heads.0 (Head)"),
        ("aten.cumsum", "heads.1 (Head)"),
        ("aten.sort.stable", "Both"),
    }
    for operator, text in (
        ("aten.cumsum", "return self.lin(x).cumsum(1)"),
        ("aten.sort.stable", "torch.sort(x"),
        ("aten.mm", "x @ x.T"),
    ):
        (line,) = {line for name, _, line in error.uses if name == operator}
        assert line.startswith(f"{__file__}:") and text in line
        assert line in str(error)
    assert "docs/operators.md" in (error.hint or "")
    assert not compiled, "something was compiled before the refusal"
    assert not list(tmp_path.glob("*.aotpack"))


@pytest.mark.usefixtures("without_kernels")
def test_the_command_tells_machines_too(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text(
        "import torch\n"
        "def model():\n    return Running()\n"
        "class Running(torch.nn.Module):\n    def forward(self, x):\n        return x.cumsum(0)\n"
        "def example_inputs():\n    return (torch.randn(3, 4),)\n"
    )
    result = CliRunner().invoke(app, ["build", str(source), "-o", str(tmp_path / "a.aotpack"), "--json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)["error"]
    assert told["type"] == "UnsupportedOperatorError"
    line = f"{source}:6, in forward: return x.cumsum(0)"
    assert told["operators"] == [{"operator": "aten.cumsum", "module": "Running", "line": line}]
    assert not (tmp_path / "a.aotpack").exists()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("aoti_torch_cpu_mm_out", "mm"),
        ("aoti_torch_index_put_out", "index_put"),
        ("at::_ops::bincount::call", "bincount"),
        ("torch.ops.aten.sort.stable", "sort_stable"),
        ("aten.cumsum.default", "cumsum"),
        ("extern_kernels.addmm", "addmm"),
        ("mine::blur", "mine_blur"),
    ],
)
def test_names_of_one_operator_have_one_key(name: str, known: str) -> None:
    assert fallbacks.key(name) == known
