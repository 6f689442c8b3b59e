"""Archives for 64-bit ARM, cross-compiled: they match eager on an emulated processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.targets import Target
from tests.support import emulated
from tests.support.building import assert_close, told_of_module
from tests.support.emulated import Emulated

TARGET = "aarch64"

pytestmark = [
    pytest.mark.skipif(emulated.AARCH64_CXX is None, reason="there is no aarch64-linux-gnu-g++"),
    pytest.mark.skipif(emulated.AARCH64 is None, reason="there is no qemu-aarch64"),
]


@pytest.fixture(scope="module")
def processor() -> Emulated:
    return emulated.aarch64()


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(33, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 7))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(torch.tanh(self.layers(x)).exp(), -1)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def residual() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(16, 16, 1), Block(16, 40, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10)),
    )


def mobile() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 48, 1), nn.Hardswish()),
        *(
            nn.Conv2d(48, 48, 3, 1, 1, groups=48),
            nn.ReLU6(),
            nn.Conv2d(48, 24, 1),
            nn.Conv2d(24, 24, 3, 1, 1, groups=6),
        ),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)),
    )


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(ids))).log_softmax(-1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(7, 12, bidirectional=True)
        self.gru = nn.GRU(24, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(self.lstm(x)[0])[0].erf()


MODELS = {
    "mlp": (Mlp, (5, 33)),
    "residual": (residual, (2, 3, 32, 32)),
    "mobile": (mobile, (2, 3, 24, 24)),
    "encoder": (Encoder, (2, 9)),
    "recurrent": (Recurrent, (6, 2, 7)),
}


def built(model: nn.Module, x: Tensor, folder: Path, cache_dir: Path, targets: tuple[str, ...] = (TARGET,)) -> Path:
    output = folder / "model.aotpack"
    build_archive(aot_export(model, (x,)), output, targets=targets, options=BuildOptions(cache_dir=cache_dir))
    return output


def called(processor: Emulated, path: Path, folder: Path, x: Tensor) -> np.ndarray:
    done = processor.run(path, folder, x.numpy())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == TARGET
    return np.fromfile(folder / "out0", np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_models_match_eager(processor: Emulated, cache_dir: Path, tmp_path: Path, name: str) -> None:
    make, shape = MODELS[name]
    model = make().eval()
    x = torch.randint(50, shape) if name == "encoder" else torch.randn(shape)
    found = called(processor, built(model, x, tmp_path, cache_dir), tmp_path, x)
    with torch.no_grad():
        expected = model(x)
    assert_close(torch.from_numpy(found).reshape(expected.shape), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precisions(processor: Emulated, cache_dir: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    class Half(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.to(dtype)).float()

    model, x = Half().to(dtype).eval(), torch.randn(5, 33)
    found = called(processor, built(model, x, tmp_path, cache_dir), tmp_path, x)
    with torch.no_grad():
        assert_close(torch.from_numpy(found).reshape(5, 7), model(x), 2e-2)


def test_a_module_needs_libc_and_libm_alone(cache_dir: Path, tmp_path: Path) -> None:
    path = built(Mlp().eval(), torch.randn(5, 33), tmp_path, cache_dir)
    told = told_of_module(path, TARGET, tmp_path, "readelf", "-hd")
    assert "AArch64" in told
    needed = {line.split("[")[1].split("]")[0].split(".so")[0] for line in told.splitlines() if "NEEDED" in line}
    assert needed <= {"libc", "libm", "ld-linux-aarch64"}


def test_each_architecture_chooses_its_own(processor: Emulated, cache_dir: Path, tmp_path: Path) -> None:
    model, x = nn.Linear(3, 4).eval(), torch.randn(2, 3)
    host = Target.host().name
    path = built(model, x, tmp_path, cache_dir, (host, TARGET))
    found = called(processor, path, tmp_path, x)
    with torch.no_grad():
        assert_close(torch.from_numpy(found).reshape(2, 4), model(x))
    (tmp_path / "other").mkdir()
    other = built(model, x, tmp_path / "other", cache_dir, (host,))
    refused = processor.run(other, tmp_path / "other", x.numpy())
    assert refused.returncode == 1
    assert f"{host} needs a processor of architecture x86-64" in refused.stderr
