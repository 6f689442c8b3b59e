"""Libraries of NVIDIA's do what otherwise runs on the host, where the host has them.

With the driver and the libraries without a GPU (tests/support/fake_cuda, fake_providers), which run no Triton kernels:
these models consist of operators that the host or a library computes.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.building import native_sources
from aotpack.building.operator_declarations import functions
from aotpack.errors import BuildError, ExecutionError
from aotpack.export import BuildOptions, BuildReport, aot_export, build_archive
from aotpack.export.backends.cuda.providers import OF_HOST_STEPS, PROVIDERS, provider_of
from tests.export.backends.cuda.cubins import check_module, module_of

pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("driver_with_providers")]

TARGET = "cuda-sm_90"
Build = Callable[..., BuildReport]
Calls = Callable[[], int]


@pytest.fixture(scope="module")
def calls(fake_providers: Path) -> Calls:
    """How often the libraries of this process got work."""
    cufft, cusolver = (ctypes.CDLL(str(fake_providers / f"lib{name}.so.12")) for name in ("cufft", "cusolver"))
    return lambda: int(cufft.fake_cufft_calls()) + int(cusolver.fake_cusolver_calls())


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path) -> Build:
    def make(model: Any, args: Sequence[Any], **how: Any) -> BuildReport:
        options = BuildOptions(cache_dir=cache_dir, providers=how.pop("providers", OF_HOST_STEPS))
        program = aot_export(model, tuple(args), **how)
        return build_archive(program, tmp_path / "m.aotpack", targets=[TARGET], options=options)

    return make


@pytest.fixture(scope="module")
def spectrum(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    options = BuildOptions(cache_dir=cache_dir, providers=["cufft", "cusolver"])
    program = aot_export(torch.fft.rfft, (randn(3, 4),))
    path = tmp_path_factory.mktemp("spectrum") / "spectrum.aotpack"
    return build_archive(program, path, targets=[TARGET], options=options).path


def module_producer(path: Path) -> dict[str, str]:
    with ArchiveReader(path) as reader:
        return dict(reader.manifest.producer)


def header(provider: str) -> str:
    return (native_sources.module_folder() / "device" / f"{provider}.h").read_text()


BATCH = ({0: aotpack.Dim("batch", 1, 100)},)


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype, generator=torch.Generator().manual_seed(sum(sizes)))


def positive(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    a = randn(*sizes, dtype=dtype)
    return a @ a.mH + torch.eye(sizes[-1], dtype=dtype)


def spectra(x: torch.Tensor, z: torch.Tensor) -> Any:
    """Of real x [2, 6, 4, 5, 3], whose last axis is not the innermost, and complex z [3, 7, 5]."""
    fft = torch.fft
    return (
        fft.fft(x, dim=1, norm="ortho"),
        fft.rfft(x),
        fft.rfftn(x, dim=(0, 1, 2, 3), norm="ortho"),
        fft.rfft(x, dim=2),
        fft.fft(z, norm="forward"),
        fft.ifft(z, dim=0),
        fft.fftn(z, dim=(0, 1)),
        fft.irfft(z, dim=1, n=12),
        fft.irfft(z, n=9, norm="ortho"),
        fft.irfft2(z, s=(7, 8)),
        fft.ifft2(z),
    )


def spectra_of_four_axes(x: torch.Tensor, z: torch.Tensor) -> Any:
    return torch.fft.fftn(z), torch.fft.rfftn(x)


def lines(x: torch.Tensor) -> Any:
    """Of one point."""
    fft = torch.fft
    return fft.fft(x), fft.irfft(fft.rfft(x, dim=0), dim=0, n=1)


def factors(a: torch.Tensor, b: torch.Tensor) -> Any:
    """Of Hermitian matrices and right sides."""
    linalg = torch.linalg
    return (
        linalg.cholesky(a),
        linalg.cholesky(a, upper=True),
        *linalg.lu_factor(a),
        linalg.inv(a),
        linalg.solve(a, b),
        linalg.solve(a, b.mT, left=False),
        linalg.eigvalsh(a),
    )


def orthogonal(a: torch.Tensor) -> Any:
    """Q and R of tall and wide matrices."""
    return (
        *torch.linalg.qr(a),
        *torch.linalg.qr(a, mode="complete"),
        torch.linalg.qr(a, mode="r")[1],
        *torch.linalg.qr(a.mT),
    )


MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "fft": (spectra, (randn(2, 3, 4, 5, 6).transpose(1, 4), randn(5, 7, 3, dtype=torch.complex64).transpose(0, 2))),
    "fft in double precision": (
        spectra,
        (
            randn(2, 3, 4, 5, 6, dtype=torch.float64).transpose(2, 3),
            randn(5, 7, 3, dtype=torch.complex128).transpose(0, 2),
        ),
    ),
    "fft of four axes": (spectra_of_four_axes, (randn(2, 3, 2, 5), randn(2, 3, 2, 5, dtype=torch.complex64))),
    "fft of few points": (lines, (randn(1, 1),)),
    "linalg": (factors, (positive(2, 5, 5), randn(2, 5, 3))),
    "linalg in double precision": (factors, (positive(6, 6, dtype=torch.float64), randn(6, 2, dtype=torch.float64))),
    "qr": (orthogonal, (randn(2, 5, 3),)),
}


def check(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.device == "cuda:0"
        np.testing.assert_allclose(one.numpy(), other.resolve_conj().numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_eager(name: str, build: Build, calls: Calls) -> None:
    model, args = MODELS[name]
    report = build(model, args)
    check_module(report.path, TARGET)
    module, _, _ = module_of(report.path, TARGET)
    assert module.imports[-1] == "provide"
    before = calls()
    loaded = aotpack.load(report.path, device="cuda:0")
    check(loaded(*args), model(*args))
    assert calls() > before
    steps = report.host_steps["forward"]["default"]
    assert {step.provider for step in steps} - {""} <= set(OF_HOST_STEPS)
    check(loaded(*args), model(*args))


def test_vectors_of_hermitian_matrices(build: Build) -> None:
    a = positive(4, 4, dtype=torch.complex128)
    values, vectors = (found.numpy() for found in aotpack.load(build(torch.linalg.eigh, (a,)).path, device="cuda:0")(a))
    np.testing.assert_allclose(a.numpy() @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(values, torch.linalg.eigvalsh(a).numpy())


def test_many_small_matrices_stay_on_the_host(build: Build, calls: Calls) -> None:
    path = build(torch.linalg.inv, (positive(3, 3).expand(17, 3, 3).contiguous(),), dynamic_shapes=BATCH).path
    model = aotpack.load(path, device="cuda:0")
    for count, grows in [(16, True), (17, False), (1, True)]:
        a, before = positive(3, 3).expand(count, 3, 3).contiguous(), calls()
        np.testing.assert_allclose(model(a).numpy(), torch.linalg.inv(a).numpy(), rtol=1e-5, atol=1e-6)
        assert (calls() > before) == grows


def test_a_matrix_without_a_solution_is_the_error_of_the_call(build: Build) -> None:
    a = positive(3, 3)
    solve = aotpack.load(build(lambda a: torch.linalg.solve(a, a), (a,)).path, device="cuda:0")
    with pytest.raises(ExecutionError, match="singular"):
        solve(torch.zeros(3, 3))
    cholesky = aotpack.load(build(torch.linalg.cholesky, (a,)).path, device="cuda:0")
    with pytest.raises(ExecutionError, match="not positive-definite"):
        cholesky(-a)
    eigenvalues = aotpack.load(build(torch.linalg.eigvalsh, (a,)).path, device="cuda:0")
    with pytest.raises(ExecutionError, match="failed to converge"):
        eigenvalues(torch.full((3, 3), float("nan")))
    np.testing.assert_allclose(eigenvalues(a).numpy(), torch.linalg.eigvalsh(a).numpy(), rtol=1e-5)


def test_plans_of_several_sizes(build: Build, calls: Calls, fake_providers: Path) -> None:
    """More sizes than plans are kept, on two contexts."""
    path = build(lambda x: torch.fft.rfft(x, dim=0), (torch.randn(8, 2),), dynamic_shapes=BATCH).path
    plans = ctypes.CDLL(str(fake_providers / "libcufft.so.12")).fake_cufft_plans
    known = plans()
    model = aotpack.load(path, device="cuda:0")
    contexts = [model.context(), model.context()]
    for size in [*range(1, 70), 1]:
        x = torch.randn(size, 2)
        for context in contexts:
            np.testing.assert_allclose(context(x).numpy(), torch.fft.rfft(x, dim=0).numpy(), rtol=1e-4, atol=1e-4)
    assert plans() - known == 2 * 64
    del contexts, context, model
    assert plans() == known


def run_elsewhere(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`aotpack verify`, which compares with eager's answers, in a process that has opened no library yet."""
    command = [
        sys.executable,
        "-c",
        "from aotpack.cli.app import app; app()",
        "verify",
        "--device",
        "cuda:0",
        str(path),
    ]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "environment",
    [
        {"AOTPACK_PROVIDER_PATH": ""},
        {"AOTPACK_PROVIDER_PATH": "/nonexistent"},
        {"FAKE_PROVIDER_VERSION": "13000"},
        {"FAKE_PROVIDER_VERSION": "10200"},
        {"FAKE_PROVIDER_FAIL": "cufftMakePlanMany64"},
    ],
    ids=["no library", "no folder", "too new", "too old", "no plan"],
)
def test_without_a_library_the_host_computes(spectrum: Path, environment: dict[str, str]) -> None:
    # A library that is used fails.
    done = run_elsewhere(spectrum, **{"FAKE_PROVIDER_FAIL": "cufftExecR2C", **environment})
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_library_that_fails_is_the_error_of_the_call(spectrum: Path) -> None:
    done = run_elsewhere(spectrum, FAKE_PROVIDER_FAIL="cufftExecR2C")
    assert done.returncode == 1
    assert "cuFFT 12.0: cufftExecR2C fails with CUFFT_EXEC_FAILED (6)" in done.stdout + done.stderr


def test_archives_without_providers_do_not_ask(build: Build, calls: Calls) -> None:
    x = torch.randn(4)
    report = build(torch.fft.rfft, (x,), providers=())
    module, _, _ = module_of(report.path, TARGET)
    assert "provide" not in module.imports
    assert "providers" not in module_producer(report.path)
    before = calls()
    np.testing.assert_allclose(aotpack.load(report.path, device="cuda:0")(x).numpy(), torch.fft.rfft(x).numpy(), 1e-5)
    assert calls() == before


def test_names_of_providers(build: Build, spectrum: Path) -> None:
    assert module_producer(spectrum)["providers"] == "cufft"
    with pytest.raises(BuildError, match="no provider 'cufftw'") as caught:
        build(torch.fft.rfft, (torch.randn(4),), providers=("cufft", "cufftw"))
    assert "cufft, cusolver" in str(caught.value.hint)


def test_providers_have_functions_of_the_host() -> None:
    known = functions()
    provided = [name for name, function in known.items() if provider_of(function, PROVIDERS)]
    assert {"aoti_torch_cpu_fft_c2c", "aoti_torch_cpu_linalg_eigh"} <= set(provided)
    declared = "".join(header(name) for name in OF_HOST_STEPS)
    assert len(provided) == declared.count("\nbool ")
    for name in provided:
        # Parameters and results are the same.
        given = (*known[name].parameters, *known[name].results)
        assert f"bool {name.removeprefix('aoti_torch_cpu_')}({', '.join(map(str, given))});" in declared
        assert not provider_of(known[name], ())
