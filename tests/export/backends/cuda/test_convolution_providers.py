"""cuDNN computes convolutions in place of this project's kernels, where the host has it.

As in test_product_providers.py, a model whose call succeeds in this process is the library's work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.ops.cuda import conv, gpu
from aotpack.export.ops.cuda.attempts import attempt
from aotpack.export.ops.cuda.conv_kernel import conv_kernel, depthwise_kernel
from tests.export.backends.cuda.conftest import Verify
from tests.export.backends.cuda.cubins import check_module, module_of
from tests.export.backends.cuda.provided import check, randn
from tests.support.cuda_archives import FAKE_PROVIDERS
from tests.support.interpreted_gpu.recording import recorded_kernels

pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("driver_with_providers")]

TARGET = "cuda-sm_90"
BATCH = aotpack.Dim("batch", 1, 70)


@pytest.fixture(autouse=True)
def undivided(monkeypatch: pytest.MonkeyPatch) -> None:
    never_divide(monkeypatch)


def never_divide(patch: pytest.MonkeyPatch) -> None:
    """Sums of small models would be divided among blocks, and not be the library's."""
    choose = conv.choose
    patch.setattr(conv, "choose", lambda *args, **how: (choose(*args, **how)[0], 1))


@pytest.fixture(scope="module")
def library(fake_providers: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(fake_providers / FAKE_PROVIDERS["cudnn"]))
    for function in ("fake_cudnn_calls", "fake_cudnn_asked"):
        getattr(found, function).restype = ctypes.c_uint64
    return found


def build(path: Path, cache_dir: Path, model: Any, args: Sequence[Any], **how: Any) -> Path:
    precision = how.pop("precision", "ieee")
    options = BuildOptions(cache_dir=cache_dir, providers=["cudnn"], float32_products=precision)
    return build_archive(aot_export(model, tuple(args), **how), path, targets=[TARGET], options=options).path


def images(*sizes: int, dtype: torch.dtype) -> Tensor:
    """With channels innermost in memory."""
    return randn(sizes[0], *sizes[2:], sizes[1], dtype=dtype).movedim(-1, 1)


class Planes(nn.Module):
    """Of images [batch, 16, 9, 7] and [batch, 24, 5, 4]: strides, groups, an addition; a weight that is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(16, 24, 3, stride=2, padding=1, groups=2)
        self.wide = nn.Conv2d(16, 24, (3, 1), stride=2, padding=(1, 0), bias=False)

    def forward(self, x: Tensor, y: Tensor, w: Tensor) -> Any:
        return F.relu(self.down(x)), F.relu(self.wide(x) + y), F.conv2d(x, w, dilation=(2, 1), padding=1)


def planes(dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...]]:
    given = images(2, 16, 9, 7, dtype=dtype), images(2, 24, 5, 4, dtype=dtype), randn(8, 16, 3, 3, dtype=dtype)
    return Planes().to(dtype).eval(), given


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_library_computes(dtype: torch.dtype, tmp_path: Path, cache_dir: Path, library: ctypes.CDLL) -> None:
    model, args = planes(dtype)
    path = build(tmp_path / "m.aotpack", cache_dir, model, args, dynamic_shapes=({0: BATCH}, {0: BATCH}, None))
    check_module(path, TARGET)
    loaded = aotpack.load(path, device="cuda:0")
    asked = library.fake_cudnn_asked()
    for size in (2, 1, 2, 1):
        x, y, w = args
        before = library.fake_cudnn_calls()
        with torch.no_grad():
            check(loaded(x[:size], y[:size], w), model(x[:size], y[:size], w))
        assert library.fake_cudnn_calls() - before == 3
    # For each combination of sizes once in a context.
    assert library.fake_cudnn_asked() - asked <= 2 * 3


class Volumes(nn.Module):
    """Of volumes [batch, 8, 5, 6, 4], images [batch, 16, 3, 4] and lines [batch, 12, 20]: convolutions of one and three
    dims, transposed ones in groups, dense images, and an activation that cuDNN has not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.solid = nn.Conv3d(8, 10, (2, 3, 1), padding=(1, 0, 0), dilation=(2, 1, 1))
        self.up = nn.ConvTranspose2d(16, 12, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False)
        self.line = nn.Conv1d(12, 9, 4, stride=3)
        self.plane = nn.Conv2d(16, 8, 2)

    def forward(self, v: Tensor, x: Tensor, s: Tensor) -> Any:
        return self.solid(v), self.up(x), self.line(s), F.silu(self.plane(x)), self.plane(x).relu()


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, kernels: Path) -> Path:
    path = tmp_path_factory.mktemp("volumes") / "volumes.aotpack"
    args = (randn(2, 8, 5, 6, 4), randn(2, 16, 3, 4), randn(2, 12, 20))
    with pytest.MonkeyPatch.context() as patch, recorded_kernels(kernels):
        never_divide(patch)
        return build(path, cache_dir, Volumes().eval(), args, dynamic_shapes=[{0: BATCH}] * 3, precision="tf32")


@pytest.mark.parametrize(
    ("environment", "provided"),
    [
        ({"FAKE_PROVIDER_VERSION": "100000"}, 0),
        ({"FAKE_PROVIDER_VERSION": "8902"}, 4),
        ({"FAKE_PROVIDER_FAIL": "cudnnConvolution, not supported"}, 1),
    ],
    ids=["too new", "version 8", "not supported"],
)
def test_without_the_library_kernels_compute(
    volumes: Path,
    kernels: Path,
    verify: Verify,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    provided: int,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    others = [kernel for kernel in module_of(volumes, TARGET)[0].kernels if "triton_" in kernel.name]
    assert f": {len(others) + 5 - provided} launches in " in verify(kernels, volumes)


def test_a_library_that_fails_is_the_error_of_the_call(
    volumes: Path, kernels: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PROVIDER_FAIL", "cudnnConvolutionBackwardData")
    text = verify(kernels, volumes, code=1)
    assert "cuDNN 9.5: cudnnConvolutionBackwardData fails with CUDNN_STATUS_EXECUTION_FAILED (5000)" in text


PLAIN = {
    **{f"{name}_{dim}": 1 for name in ("KERNEL", "STEP", "PAD", "DILATION") for dim in "DHW"},
    "SPLITS": 1,
    "DOUBLE": False,
    "TRANSPOSED": False,
    "PHASED": False,
    "CHANNELS": 8,
    "HAS_BIAS": True,
    "HAS_RESIDUAL": True,
    "ACTIVATION": 1,
}


@pytest.mark.parametrize(
    ("changed", "dtype", "precision", "asks"),
    [
        ({}, torch.float16, "tf32x3", True),
        ({}, torch.float32, "ieee", True),
        ({}, torch.float32, "tf32x3", False),
        ({"SPLITS": 2}, torch.float16, "ieee", False),
        ({"DOUBLE": True}, torch.float64, "ieee", False),
        ({"ACTIVATION": 2}, torch.float16, "ieee", False),
        ({"TRANSPOSED": True}, torch.float16, "ieee", False),
        ({"TRANSPOSED": True, "HAS_BIAS": False, "HAS_RESIDUAL": False, "ACTIVATION": 0}, torch.float16, "ieee", True),
    ],
)
def test_what_the_library_is_asked_for(changed: dict[str, Any], dtype: torch.dtype, precision: str, asks: bool) -> None:
    with gpu.float32_products(precision):
        assert (attempt(conv_kernel, PLAIN | changed, dtype, ["cudnn"]) is not None) == asks
    assert attempt(depthwise_kernel, PLAIN | changed, dtype, ["cudnn"]) is None
