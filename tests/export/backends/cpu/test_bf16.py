"""Archives for processors with instructions for bf16: right, and those instructions only where something is bf16."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.archive import ArchiveReader
from aotpack.export import aot_export, build_archive
from aotpack.runtime import load
from aotpack.targets import Target
from tests.support.building import Build, assert_close

pytestmark = pytest.mark.skipif(Target.host().arch != "x86-64", reason="this machine compiles no x86-64 code")

TARGETS = ["x86-64-v4-bf16", "x86-64-v4-amx"]
INSTRUCTIONS = {"x86-64-v4-bf16": r"\bvdpbf16ps\b", "x86-64-v4-amx": r"\btdpbf16ps\b"}


class Convolutions(nn.Module):
    """Few channels, padding, strides, dilation, groups, three dims, and sizes that fill no tile."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 7, stride=2, padding=3)
        self.norm = nn.BatchNorm2d(24)
        self.inner = nn.Conv2d(24, 24, 3, padding=2, dilation=2)
        self.strided = nn.Conv2d(24, 70, 3, stride=2, padding=1)
        self.groups = nn.Conv2d(70, 140, 3, padding=1, groups=2)
        self.point = nn.Conv2d(140, 35, 1, stride=2)
        self.deep = nn.Conv3d(1, 33, (2, 3, 3), padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.inner(x))
        x = self.point(nn.functional.gelu(self.groups(self.strided(x))))
        return self.deep(x[:, None]).mean((3, 4))


class Encoder(nn.Module):
    """Rows from one to many, sums of even, odd and long depth, tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(90, 52)
        self.layer = nn.TransformerEncoderLayer(52, 4, 1100, batch_first=True, activation="gelu")
        self.odd = nn.Linear(52, 37)
        self.head = nn.Linear(37, 5)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layer(self.embedding(ids))
        return self.head(torch.tanh(self.odd(x))), x @ self.embedding.weight.t()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(19, 24, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Transposed(nn.Module):
    """Phases with and without taps, groups, dilation, a residual and activations."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(12, 40, 4, stride=2, padding=1)
        self.groups = nn.ConvTranspose2d(40, 20, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.dilated = nn.ConvTranspose2d(20, 20, 3, padding=2, dilation=2)
        self.sparse = nn.ConvTranspose2d(20, 5, 1, stride=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.groups(nn.functional.gelu(self.up(x)))
        return self.sparse(torch.relu(x + self.dilated(x)))


class Products(nn.Module):
    """Of activations, in all layouts."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a, b, c = x[..., :33], x[..., 33:66], x[..., 66:]
        square = a @ b.transpose(1, 2)
        tall = a.transpose(1, 2) @ c
        return square, tall, torch.baddbmm(c, square, c, beta=0.5), tall.transpose(1, 2) @ a.transpose(1, 2)


MODELS = {
    "convolutions": (Convolutions, torch.randn(2, 3, 45, 51), {"x": {0: Dim("batch", min=1, max=8)}}),
    "encoder": (Encoder, torch.randint(90, (2, 33)), {"ids": {1: Dim("length", min=1, max=64)}}),
    "transposed": (Transposed, torch.randn(2, 12, 9, 11), {"x": {0: Dim("batch", min=1, max=8)}}),
    "products": (Products, torch.randn(3, 47, 95) / 4, {"x": {0: Dim("batch", min=1, max=8)}}),
    "recurrent": (Recurrent, torch.randn(6, 3, 19), None),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_models_match_eager(build: Build, name: str, target: str) -> None:
    if not Target(target).runs_on(Target.host()):
        pytest.skip(f"this machine does not run {target}")
    make, x, shapes = MODELS[name]
    torch.manual_seed(1)
    model = make().bfloat16().eval()
    x = x.bfloat16() if x.is_floating_point() else x
    archive = build(model, (x,), dynamic_shapes=shapes, targets=[target])
    assert archive.target == target
    exact = make().eval()
    exact.load_state_dict({key: value.float() for key, value in model.state_dict().items()})
    inputs = [x, x[:1]] if name not in ("encoder", "recurrent") else [x, x[:, :1]] if name == "encoder" else [x]
    for given in inputs:
        with torch.no_grad():
            expected = exact(given.float() if given.is_floating_point() else given)
        results = archive(given)
        for got, wanted in zip(_tuple(results), _tuple(expected), strict=True):
            assert_close(got.float(), wanted, 3e-2)


def _tuple(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("target", TARGETS)
def test_the_instructions_are_used_by_bf16_alone(tmp_path: Path, target: str) -> None:
    model = nn.Sequential(nn.Linear(40, 70), nn.ReLU(), nn.Linear(70, 40)).eval()
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        path = tmp_path / f"{dtype}.aotpack"
        build_archive(aot_export(model.to(dtype), (torch.randn(4, 40, dtype=dtype),)), path, targets=[target])
        with ArchiveReader(path) as archive:
            code = tmp_path / "module.so"
            code.write_bytes(archive.read(f"modules/{target}/forward.so"))
        text = subprocess.run(["objdump", "-d", str(code)], capture_output=True, text=True, check=True).stdout
        found[dtype] = re.search(INSTRUCTIONS[target], text) is not None
    assert found == {torch.float32: False, torch.bfloat16: True}


def test_the_best_of_an_archive_is_chosen(tmp_path: Path) -> None:
    targets = ["x86-64-v3", "x86-64-v4", *TARGETS]
    runnable = [name for name in targets if Target(name).runs_on(Target.host())]
    if not runnable:
        pytest.skip("this machine runs none of them")
    model = nn.Linear(8, 3).bfloat16()
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    build_archive(aot_export(model, (x,)), tmp_path / "all.aotpack", targets=targets)
    archive = load(tmp_path / "all.aotpack")
    assert archive.target == runnable[-1]
