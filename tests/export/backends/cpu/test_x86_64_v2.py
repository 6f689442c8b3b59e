"""Archives for processors without AVX: right, free of later instructions, and chosen only where nothing better is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.runtime import load
from aotpack.targets import Target
from tests.support import emulated
from tests.support.building import Build, assert_close, told_of_module

pytestmark = pytest.mark.skipif(Target.host().arch != "x86-64", reason="this machine runs no x86-64 code")

TARGET = "x86-64-v2"


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 40, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        return self.point(nn.functional.hardswish(self.depthwise(x)) + x).mean((2, 3))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, activation="gelu")
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(ids))).log_softmax(-1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(7, 12, bidirectional=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out, (h, _) = self.lstm(x)
        return out.erf() + torch.sin(out), h.cumsum(0).std(-1)


MODELS = {
    "convolutions": (Convolutions, (torch.randn(2, 3, 17, 19),), {"x": {0: Dim("batch", min=1, max=8)}}),
    "encoder": (Encoder, (torch.randint(50, (2, 9)),), {"ids": {1: Dim("length", min=2, max=64)}}),
    "recurrent": (Recurrent, (torch.randn(6, 2, 7),), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_match_eager(build: Build, name: str) -> None:
    make, args, shapes = MODELS[name]
    model = make().eval()
    archive = build(model, args, dynamic_shapes=shapes, targets=[TARGET])
    assert archive.target == TARGET
    with torch.no_grad():
        assert_close(archive(*args), model(*args))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precisions(build: Build, dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 3)).to(dtype).eval()
    x = torch.randn(5, 24).to(dtype)
    archive = build(model, (x,), targets=[TARGET])
    with torch.no_grad():
        assert_close(archive(x).float(), model(x).float(), 2e-2)


def test_the_code_has_no_later_instructions(cache_dir: Path, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Softmax(-1)).eval()
    output = tmp_path / "model.aotpack"
    build_archive(
        aot_export(model, (torch.randn(5, 24),)),
        output,
        targets=[TARGET],
        options=BuildOptions(cache_dir=cache_dir),
    )
    code = told_of_module(output, TARGET, tmp_path, "objdump", "-d", "--no-show-raw-insn")
    assert re.search(r"%xmm", code)
    # Instructions of AVX begin with v; verr and verw are older.
    assert not re.search(r"%[yz]mm|\tv(?!err|erw)[a-z0-9]+ ", code)


def test_the_best_target_is_chosen(cache_dir: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.aotpack"
    targets = [info for info in (TARGET, "x86-64-v3") if Target(info).runs_on(Target.host())]
    report = build_archive(
        aot_export(nn.Linear(3, 4).eval(), (torch.randn(2, 3),)),
        output,
        targets=targets,
        options=BuildOptions(cache_dir=cache_dir),
    )
    assert report.check.target == load(output).target == targets[-1]


@pytest.mark.skipif(emulated.X86_64 is None, reason="there is no qemu-x86_64")
@pytest.mark.parametrize("cpu", ["Nehalem", "Opteron_G4"])
def test_an_old_processor(cache_dir: Path, tmp_path: Path, cpu: str) -> None:
    model, x = Convolutions().eval(), torch.randn(2, 3, 17, 19)
    output = tmp_path / "model.aotpack"
    targets = [TARGET, "x86-64-v3", "x86-64-v4"]
    options = BuildOptions(cache_dir=cache_dir)
    build_archive(aot_export(model, (x,)), output, targets=targets, options=options)
    processor = emulated.old_x86_64(tmp_path, cpu)
    done = processor.run(output, tmp_path, x.numpy())
    assert (done.returncode, done.stdout.strip()) == (0, TARGET), done.stderr
    with torch.no_grad():
        expected = model(x)
    assert_close(torch.from_numpy(np.fromfile(tmp_path / "out0", np.float32)).reshape(expected.shape), expected)
    build_archive(aot_export(model, (x,)), output, targets=targets[1:], options=options)
    refused = processor.run(output, tmp_path, x.numpy())
    assert refused.returncode == 1
    assert "x86-64-v3 needs" in refused.stderr
