"""Passes of the user in a build."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.archive import ArchiveReader
from aotpack.archive.report import parse_report
from aotpack.errors import BuildError, PassError
from aotpack.export import BuildOptions, Program, aot_export, build_archive, rewrite_pattern
from tests.support.building import assert_close
from tests.support.torchless import ROOT

pytestmark = pytest.mark.torch


class Model(nn.Module):
    """A norm behind a hard-swish that is written by hand, in an entry and its variant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y * (y + 3).clamp(0, 6) / 6


@rewrite_pattern(lambda x: x * (x + 3).clamp(0, 6) / 6)
def use_hardswish(x: Tensor) -> Tensor:
    """Replaces a hard-swish that is written out by the operator."""
    return nn.functional.hardswish(x)


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path) -> Callable[..., Any]:
    def run(program: Program | list[Program], **options: Any) -> Any:
        settings = BuildOptions(cache_dir=cache_dir, opt_level=1)
        return build_archive(program, tmp_path / "m.aotpack", options=settings, targets=["x86-64-v3"], **options)

    return run


def test_a_rewrite(build: Callable[..., Any]) -> None:
    """Before linears are packed and fused with what follows them: the kernel of the linear applies the activation."""
    model = Model().eval()
    program = aot_export(model, (torch.randn(2, 8),), dynamic_shapes={"x": {0: Dim("batch", 1, 16)}})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        report = build(program, passes=[use_hardswish])
    reports = {each.name: each for each in report.passes["forward"]["default"]}
    assert [change.note for change in reports["use-hardswish"].changes] == ["div replaced"]
    assert list(reports).index("use-hardswish") < list(reports).index("pack-linear")
    assert any("hardswish" in change.note for change in reports["fuse-epilogue"].changes)
    x = torch.randn(5, 8)
    assert_close(aotpack.load(report.path)(x), model(x))
    with ArchiveReader(report.path) as reader:
        assert reader.manifest.report is not None
        stored = parse_report(reader.read(reader.manifest.report))
    assert "use-hardswish" in [each["name"] for each in stored["forward"]["default"]]


def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> None:
    page = (ROOT / "docs" / "passes.md").read_text()
    example = page.partition("## Replacing operators")[2].partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(cache_dir))
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "example.py", "exec"), names)
    reports = {each.name: len(each.changes) for each in names["report"].passes["forward"]["default"]}
    assert (reports["use-hardswish"], reports["norm-of-rows"]) == (1, 1)
    assert reports["fuse-epilogue"] >= 1


def test_one_that_matches_nothing_says_so(build: Callable[..., Any]) -> None:
    program = aot_export(lambda x: x.exp(), (torch.randn(3),))
    with pytest.warns(UserWarning, match="the rewrite use-hardswish matches nothing in this model"):
        report = build(program, passes=[use_hardswish])
    (found,) = (each for each in report.passes["forward"]["default"] if each.name == "use-hardswish")
    assert found.summary.endswith("by the operator. Matches nothing.")


def test_functions_of_programs(build: Callable[..., Any]) -> None:
    seen: list[str] = []

    def look(program: Program) -> Program:
        seen.append(program.signature.name)
        return program

    def fails(program: Program) -> Program:
        raise KeyError("gone")

    programs = [aot_export(torch.sin, (torch.randn(3),), entry=name) for name in ("a", "b")]
    build(programs, passes=[look])
    assert seen == ["a", "b"]
    with pytest.raises(PassError, match="pass fails failed: KeyError: 'gone'") as info:
        build(programs, passes=[fails])
    assert info.value.hint is None
    for passes, message in (
        ([look, look], "two passes have the name 'look'"),
        ([rewrite_pattern(torch.ops.aten.sin, name="fold-scales")(torch.cos)], "'fold-scales'"),
        (["x"], "a pass is a str"),
    ):
        with pytest.raises(BuildError, match=message):
            build(programs, passes=passes)
