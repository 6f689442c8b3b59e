"""Batches that may be empty: layers whose kernels write to tensors with a dim that may be 0."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch
from torch import Tensor, nn
from torch.testing import assert_close

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.interpreted_gpu.recording import recorded_kernels
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch


class _Layers(nn.Module):
    """Convolutions of each kind, an LSTM and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.larger = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.sound = nn.Conv1d(4, 8, 3, groups=2)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.larger(self.image(x))
        z = self.sound(y.flatten(2)).transpose(1, 2)
        return y, self.lstm(z)[0], self.attention(z)


@torch.no_grad()
def test_layers(gpu: Torchless, kernels: Path, tmp_path: Path, cache_dir: Path) -> None:
    model = _Layers().eval()
    with recorded_kernels(kernels):
        program = aot_export(model, (torch.randn(3, 2, 6, 6),), dynamic_shapes=[{0: aotpack.Dim("batch", 0, 70)}])
        options = BuildOptions(cache_dir=cache_dir)
        build_archive(program, tmp_path / "m.aotpack", targets=["cuda-sm_90"], options=options)
    context = gpu.load(tmp_path / "m.aotpack", device="cuda:0").context()
    for batch in (2, 0, 1):
        x = torch.randn(batch, 2, 6, 6)
        assert_close(context(x), model(x), rtol=0, atol=2e-5)
