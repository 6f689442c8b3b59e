"""Archives for GPUs, built on a host without one: they are well-formed, and the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotpack
from aotpack.errors import UnsupportedOperatorError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.cuda import host_steps
from aotpack.targets import Target
from tests.export.backends.cuda.cubins import check_module, module_of
from tests.support.building import manifest_of

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

TARGETS = ("cuda-sm_80", "cuda-sm_90")

Pack = Callable[..., Path]


class Norm(nn.Module):
    """A norm with two weights of one shape and different values."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.scale = nn.Parameter(torch.full((64,), 2.0))
        self.shift = nn.Parameter(torch.full((64,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.norm(x)) * self.scale + self.shift


class Counter(nn.Module):
    """State, and a constant of the code."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count += x.sum(0)
        return self.count * torch.tensor([1.0, 2.0, 3.0, 4.0])


def build(path: Path, cache: Path, model: nn.Module, args: tuple[Any, ...], **shapes: Any) -> Path:
    program = aot_export(model.eval(), args, **shapes)
    build_archive(program, path, targets=list(TARGETS), options=BuildOptions(cache_dir=cache))
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("cuda") / "norm.aotpack"
    shapes = {"x": {0: aotpack.Dim("batch", 1, 512)}}
    return build(path, cache_dir, Norm(), (torch.randn(8, 64),), dynamic_shapes=shapes)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_small_perceptron(tmp_path: Path, cache_dir: Path, dtype: torch.dtype, dynamic: bool) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(dtype)
    shapes = {"input": {0: aotpack.Dim("batch", 1, 512)}} if dynamic else None
    path = build(tmp_path / "mlp.aotpack", cache_dir, model, (torch.randn(8, 64, dtype=dtype),), dynamic_shapes=shapes)
    for target in TARGETS:
        check_module(path, target)
        module, _, _ = module_of(path, target)
        assert sum("gemm" in kernel.name or "gemv" in kernel.name for kernel in module.kernels) == 2


def test_a_kernel_is_compiled_once_for_many_integers(tmp_path: Path, cache_dir: Path) -> None:
    path = build(tmp_path / "gru.aotpack", cache_dir, nn.GRU(4, 8), (torch.randn(5, 2, 4),))
    module, assets, _ = module_of(path, "cuda-sm_90")
    assert sum("recurrent" in kernel.name for kernel in module.kernels) == 5
    # The first step, and all others.
    assert sum("recurrent" in name for name in assets) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_an_archive_has_what_its_host_code_launches(archive: Path, target: str) -> None:
    check_module(archive, target)
    _, assets, _ = module_of(archive, target)
    assert {Path(name).suffix for name in assets} == ({".cubin", ".ptx"} if target == "cuda-sm_80" else {".cubin"})


def test_weights_of_one_shape_stay_apart(archive: Path) -> None:
    manifest = manifest_of(archive)
    module, _, _ = module_of(archive, "cuda-sm_90")
    assert {manifest.constants[i].sources for i in module.constants} == {
        ("norm.weight",),
        ("norm.bias",),
        ("scale",),
        ("shift",),
    }


def test_the_same_bytes_twice(archive: Path, tmp_path: Path, cache_dir: Path) -> None:
    torch.manual_seed(0)
    shapes = {"x": {0: aotpack.Dim("batch", 1, 512)}}
    args = (torch.randn(8, 64),)
    first = build(tmp_path / "norm.aotpack", cache_dir, Norm(), args, dynamic_shapes=shapes).read_bytes()
    assert build(tmp_path / "norm.aotpack", cache_dir, Norm(), args, dynamic_shapes=shapes).read_bytes() == first


def test_state_and_literals_are_constants(tmp_path: Path, cache_dir: Path) -> None:
    path = build(tmp_path / "counter.aotpack", cache_dir, Counter(), (torch.ones(3, 4),))
    manifest = manifest_of(path)
    assert [constant.mutated for constant in manifest.constants if constant.sources == ("count",)] == [True]
    for target in TARGETS:
        check_module(path, target)


def test_a_cpu_target_beside_shares_the_weights(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(Norm().eval(), (torch.randn(8, 64),))
    path = tmp_path / "both.aotpack"
    host = Target.host().name
    report = build_archive(program, path, targets=[host, "cuda-sm_90"], options=BuildOptions(cache_dir=cache_dir))
    assert report.check.target == host
    assert len(manifest_of(path).constants) == 4
    check_module(path, "cuda-sm_90")


def test_a_build_says_that_it_could_not_check(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(Norm().eval(), (torch.randn(8, 64),))
    options = BuildOptions(cache_dir=cache_dir)
    report = build_archive(program, tmp_path / "a.aotpack", targets=["cuda-sm_90"], options=options)
    assert "devices of cuda-sm_90 only" in str(report.check.skipped)


def test_operators_without_a_kernel_are_all_named(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_steps, "functions", dict)
    program = aot_export(lambda x: torch.linalg.qr(x)[0] + torch.linalg.svdvals(x), (torch.randn(4, 4),))
    options = BuildOptions(cache_dir=cache_dir)
    with pytest.raises(UnsupportedOperatorError) as caught:
        build_archive(program, tmp_path / "a.aotpack", targets=["cuda-sm_90"], options=options)
    assert len(caught.value.operators) == 2


def test_nothing_of_the_device_is_left(archive: Path) -> None:
    assert archive.exists()
    # Where torch has CUDA, this is what it said before.
    if torch.version.cuda is not None:
        pytest.skip("torch is built for CUDA")
    assert not torch.cuda.is_available()
    with pytest.raises((RuntimeError, AssertionError), match=r"CUDA|cuda"):
        torch.empty(1, device="cuda")
