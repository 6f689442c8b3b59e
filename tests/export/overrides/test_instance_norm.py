"""Instance norms in training mode: their running statistics are state, of which torch's operator says nothing."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import CaptureError
from aotpack.export import BuildOptions, aot_export, build_archive, load_exported
from tests.support.building import assert_close

pytestmark = pytest.mark.torch


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.InstanceNorm1d(3, momentum=0.3, track_running_stats=True)
        self.square = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
        self.plain = nn.InstanceNorm2d(3)
        self.kept = nn.InstanceNorm2d(3, track_running_stats=True).eval()

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return self.flat(x), self.square(y), self.plain(y), self.kept(y), self.flat.running_mean + 0


def test_running_statistics_are_state(tmp_path: Path, cache_dir: Path) -> None:
    model = Norms()
    x, y = torch.randn(3, 7), torch.randn(2, 3, 4, 5)
    shapes = {"x": None, "y": {0: aotpack.Dim("b", 1, 4)}}
    program = aot_export(model, (x, y), dynamic_shapes=shapes)
    report = build_archive(program, tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert report.check.outputs == 5
    context = aotpack.load(report.path).context()
    eager = copy.deepcopy(model)
    for _ in range(3):
        for call in ((x, y), (x * 3 + 1, torch.randn(1, 3, 4, 5)), (x, torch.randn(4, 3, 4, 5))):
            with torch.no_grad():
                assert_close(context(*call), eager(*call))
    state = {name: torch.from_numpy(value.numpy()) for name, value in context.state().items()}
    assert set(state) == {f"{norm}.running_{what}" for norm in ("flat", "square") for what in ("mean", "var")}
    assert_close(state, {name: eager.get_buffer(name) for name in state})


def test_what_torch_export_has_captured_is_refused(tmp_path: Path) -> None:
    model = nn.InstanceNorm1d(3, track_running_stats=True)
    torch.export.save(torch.export.export(model, (torch.randn(2, 3, 7),)), tmp_path / "norm.pt2")
    with pytest.raises(
        CaptureError,
        match="an instance norm in training mode keeps running statistics",
    ):
        load_exported(tmp_path / "norm.pt2")
