"""cuBLASLt multiplies matrices in place of this project's kernels, where the host has it.

The library computes on the host (tests/support/fake_providers). The driver without a GPU runs no Triton kernels: a
model whose call succeeds in this process is the library's work. Kernels run in Triton's interpreter, in another
process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.ops.cuda import gemm, gpu
from aotpack.export.ops.cuda.attempts import attempt
from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.gemm_rule import Tile
from aotpack.export.ops.cuda.gemv_kernel import gemv_kernel
from tests.export.backends.cuda.conftest import Verify
from tests.export.backends.cuda.cubins import check_module, module_of
from tests.export.backends.cuda.provided import check, randn
from tests.support.cuda_archives import FAKE_PROVIDERS
from tests.support.interpreted_gpu.recording import recorded_kernels

pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("driver_with_providers")]

TARGET = "cuda-sm_90"
Build = Callable[..., Path]
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(scope="module")
def library(fake_providers: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(fake_providers / FAKE_PROVIDERS["cublaslt"]))
    for function in ("fake_cublaslt_calls", "fake_cublaslt_asked"):
        getattr(found, function).restype = ctypes.c_uint64
    return found


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path) -> Build:
    def make(model: Any, args: Sequence[Any], *, precision: str = "ieee", **how: Any) -> Path:
        options = BuildOptions(cache_dir=cache_dir, providers=["cublaslt"], float32_products=precision)
        program = aot_export(model, tuple(args), **how)
        return build_archive(program, tmp_path / "m.aotpack", targets=[TARGET], options=options).path

    return make


def layers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    """Of x [rows, 16] and w [24, 16]."""
    scaled = torch.addmm(b, x, w.T, alpha=-0.5)
    return F.relu(F.linear(x, w, b)), F.gelu(F.linear(x, w), approximate="tanh"), scaled


def batches(y: torch.Tensor, z: torch.Tensor) -> Any:
    """Of y [3, 40, 6] and z [3, 40, 40]: transposed operands, one matrix for all of a batch."""
    return y @ y.mT, y.mT @ y, z @ y[:1], z[1] @ y, y.mT @ z


MODELS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    **{
        f"layers {dtype}": (layers, (randn(40, 16, dtype=dtype), randn(24, 16, dtype=dtype), randn(24, dtype=dtype)), 3)
        for dtype in HALVES
    },
    **{
        f"batches {dtype}": (batches, (randn(3, 40, 6, dtype=dtype), randn(3, 40, 40, dtype=dtype)), 5)
        for dtype in (torch.bfloat16, torch.float32, torch.float64)
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_the_library_computes(name: str, build: Build, library: ctypes.CDLL) -> None:
    model, args, count = MODELS[name]
    path = build(model, args)
    check_module(path, TARGET)
    assert module_of(path, TARGET)[0].imports[-1] == "provide"
    before = library.fake_cublaslt_calls()
    loaded = aotpack.load(path, device="cuda:0")
    check(loaded(*args), model(*args))
    assert library.fake_cublaslt_calls() - before == count


def test_operands_of_the_copy_engine(build: Build, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that take descriptors of matrices: the library gets what these describe."""
    monkeypatch.setattr(gemm, "choose_tma", lambda *_, **__: Tile(64, 64, 64, 4, 3))

    args = (randn(40, 32).half(), randn(24, 32).half(), randn(24).half())

    def split(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return F.relu(F.linear(x, w, b)), x[:, :24] @ w

    path = build(split, args, dynamic_shapes=({0: aotpack.Dim("rows", 0, 100)}, None, None))
    assert "tensor_map" in module_of(path, TARGET)[0].imports
    loaded, before = aotpack.load(path, device="cuda:0"), library.fake_cublaslt_calls()
    check(loaded(*args), split(*args))
    # Where rows begin at odd addresses, what is described is a copy.
    moved = (torch.cat([args[0].flatten()[:1], args[0].flatten()])[1:].view(40, 32), *args[1:])
    check(loaded(*moved), split(*moved))
    assert library.fake_cublaslt_calls() - before == 4
    check(loaded(args[0][:0], *args[1:]), split(args[0][:0], *args[1:]))
    assert library.fake_cublaslt_calls() - before == 4


def test_a_residual_is_added(build: Build, library: ctypes.CDLL) -> None:
    def block(x: torch.Tensor, added: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return (F.relu(F.conv2d(x, w, b) + added),)

    def images() -> torch.Tensor:
        return randn(2, 24, 5, 7).half().contiguous(memory_format=torch.channels_last)

    args = (images(), images(), randn(24, 24, 1, 1).half(), randn(24).half())
    before = library.fake_cublaslt_calls()
    check(aotpack.load(build(block, args), device="cuda:0")(*args), block(*args))
    assert library.fake_cublaslt_calls() - before == 1


def test_sizes_are_looked_up_once(build: Build, library: ctypes.CDLL) -> None:
    """More sizes than plans are kept, on two contexts."""
    rows = ({0: aotpack.Dim("rows", 0, 2000)}, None)
    args = (randn(200, 8).half(), randn(8, 16).half())
    model = aotpack.load(build(lambda x, w: (x @ w,), args, dynamic_shapes=rows), device="cuda:0")
    contexts = [model.context(), model.context()]
    asked, calls = library.fake_cublaslt_asked(), library.fake_cublaslt_calls()
    for size in [*range(1, 65), 1, 2, 0]:
        for context in contexts:
            check(context(args[0][:size], args[1]), (args[0][:size] @ args[1],))
    assert library.fake_cublaslt_asked() - asked == 2 * 64
    assert library.fake_cublaslt_calls() - calls == 2 * 66
    # The sizes 1 and 2 were used last. 3 makes room for a new one, and is asked for again.
    for size in (65, 1, 2, 3):
        contexts[0](args[0][:size], args[1])
    assert library.fake_cublaslt_asked() - asked == 2 * 64 + 2


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, kernels: Path) -> Path:
    """Products by the library, or by kernels, with what only kernels do."""

    def model(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        return F.relu(F.linear(x, w, b)), F.gelu(F.linear(x, w, b)), torch.baddbmm(z, y, y.mT, alpha=0.5, beta=2)

    args = (randn(40, 16).bfloat16(), randn(24, 16).bfloat16(), randn(24).bfloat16(), randn(2, 40, 6), randn(2, 40, 40))
    rows = ({0: aotpack.Dim("rows", 1, 100)}, None, None, None, None)
    options = BuildOptions(cache_dir=cache_dir, providers=["cublaslt"], float32_products="tf32")
    path = tmp_path_factory.mktemp("mixed") / "mixed.aotpack"
    with recorded_kernels(kernels):
        program = aot_export(model, args, dynamic_shapes=rows)
        return build_archive(program, path, targets=[TARGET], options=options).path


@pytest.mark.parametrize(
    ("environment", "launches"),
    [
        ({}, 2),
        ({"AOTPACK_PROVIDER_PATH": "/nonexistent"}, 4),
        ({"FAKE_PROVIDER_FAIL": "cublasLtMatmulAlgoGetHeuristic"}, 4),
    ],
    ids=["library", "no library", "no algorithm"],
)
def test_without_the_library_kernels_compute(
    mixed: Path,
    kernels: Path,
    verify: Verify,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    launches: int,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert f": {launches} launches in " in verify(kernels, mixed)


def test_a_library_that_fails_is_the_error_of_the_call(
    mixed: Path, kernels: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PROVIDER_FAIL", "cublasLtMatmul")
    text = verify(kernels, mixed, code=1)
    assert "cuBLASLt 12.8: cublasLtMatmul fails with CUBLAS_STATUS_EXECUTION_FAILED (13)" in text


def test_inspect_names_the_library(mixed: Path) -> None:
    module = module_of(mixed, TARGET)[0]
    names = [kernel.name.partition(", or ")[2] for kernel in module.kernels if "gemm" in kernel.name]
    # GELU is not that of the library.
    assert sorted(names) == ["", "cublaslt", "cublaslt"]


PLAIN = {"SPLITS": 1, "ALPHA": 1.0, "ACTIVATION": 0, "HAS_BIAS": False, "HAS_RESIDUAL": False}


@pytest.mark.parametrize(
    ("changed", "dtype", "precision", "asks"),
    [
        ({}, torch.float16, "tf32x3", True),
        ({}, torch.float64, "tf32x3", True),
        ({}, torch.float32, "ieee", True),
        ({}, torch.float32, "tf32", True),
        # Our kernel is as precise, and faster.
        ({}, torch.float32, "tf32x3", False),
        ({"SPLITS": 2}, torch.float16, "ieee", False),
        ({"ALPHA": float("inf")}, torch.float16, "ieee", False),
        ({"ACTIVATION": 1}, torch.float64, "ieee", True),
        ({"ACTIVATION": 2}, torch.float16, "ieee", False),
        ({"ACTIVATION": 3}, torch.bfloat16, "ieee", True),
        ({"ACTIVATION": 3}, torch.float32, "ieee", False),
        ({"ACTIVATION": 4}, torch.bfloat16, "ieee", False),
    ],
)
def test_what_the_library_is_asked_for(changed: dict[str, Any], dtype: torch.dtype, precision: str, asks: bool) -> None:
    with gpu.float32_products(precision):
        found = attempt(gemm_kernel, PLAIN | changed, dtype, ["cublaslt"])
    assert (found is not None) == asks
    assert found is None or f".tf32 = {str(precision == 'tf32').lower()}" in found.call or dtype != torch.float32


def test_other_kernels_are_launched() -> None:
    assert attempt(gemv_kernel, PLAIN, torch.float16, ["cublaslt"]) is None
    assert attempt(gemm_kernel, PLAIN, torch.float16, ["cufft"]) is None
