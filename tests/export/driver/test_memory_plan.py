"""Values of a module in one block of memory: the results, the system's share, and what `aotpack inspect` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from typer.testing import CliRunner

import aotpack
from aotpack.cli.app import app
from aotpack.export import BuildOptions, aot_export, build_archive


class Blocks(nn.Module):
    """A value that lives long beside many that do not; results that are views of one value; a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        start = torch.cumsum(x, 0)
        y = start
        for _ in range(4):
            y = y + self.second(nn.functional.gelu(self.first(self.norm(y))))
        y = torch.cond(y.sum() > 0, lambda y: torch.cumsum(y, 1).sin(), lambda y: torch.cumsum(y, 0).cos(), (y,))
        both = torch.cumsum(torch.cat([y, start]), 1)
        return both[: both.shape[0] // 2], both[both.shape[0] // 2 :].mT, y


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_and_what_inspect_says(dynamic: bool, tmp_path: Path, cache_dir: Path) -> None:
    torch.manual_seed(0)
    model = Blocks().eval()
    dims = {"x": {0: Dim("rows", min=1, max=100)}} if dynamic else None
    program = aot_export(model, (torch.randn(32, 64),), dynamic_shapes=dims)
    path = tmp_path / "blocks.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    context = aotpack.load(path).context(num_threads=2)
    for rows in (32, 1, 100, 32, 31) if dynamic else (32, 32):
        for sign in (1.0, -1.0):
            x = torch.randn(rows, 64) + sign
            for found, expected in zip(context(x), model(x), strict=True):
                torch.testing.assert_close(torch.from_dlpack(found), expected, rtol=1e-3, atol=2e-3)
    told = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)
    ((step,),) = told["memory"]["forward"]["default"].values()
    # `start` and one hidden value of 32 rows at least; far from all of them.
    hidden = 4 * 32 * 256
    assert 4 * 32 * 64 + hidden <= step["arena_bytes"] < 3 * hidden
    both = 4 * 2 * 32 * 64
    assert step["arena_bytes"] + both <= step["peak_bytes"] < step["arena_bytes"] + 2 * both
    assert "peak memory" in CliRunner().invoke(app, ["inspect", str(path)]).stdout


def test_archives_without_a_description(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "none.aotpack"
    options = BuildOptions(cache_dir=cache_dir, description=False)
    build_archive(aot_export(nn.Linear(4, 4).eval(), (torch.randn(2, 4),)), path, options=options)
    assert json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)["memory"] is None
    assert "peak memory" not in CliRunner().invoke(app, ["inspect", str(path)]).stdout
