"""Running archives for GPUs without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.torchless import ROOT, Torchless
from tests.support.warm_python import WarmPython

Verify = Callable[..., str]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where builds record the sources of kernels, for `verify` and `gpu`."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def gpu(fake_driver: Path, kernels: Path) -> Iterator[Torchless]:
    """A process that calls archives."""
    process = Torchless(
        {"AOTPACK_LIBCUDA": str(fake_driver), "FAKE_CUDA_DEVICES": "9.0"},
        ["tests.support.interpreted_gpu.worker", str(fake_driver), str(kernels)],
    )
    yield process
    process.close()


@pytest.fixture(scope="session")
def verify(fake_driver: Path) -> Verify:
    """`tests.support.interpreted_gpu.verify`; returns what it prints."""
    python = WarmPython(("aotpack.cli.app", "tests.support.interpreted_gpu.interpreter"), {"TRITON_INTERPRET": "1"})

    def run(kernels: Path, *archives: Path, code: int = 0) -> str:
        module = "tests.support.interpreted_gpu.verify"
        environment = {**os.environ, "FAKE_CUDA_DEVICES": "9.0"}
        done = python.run("-m", module, fake_driver, kernels, *archives, cwd=ROOT, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def driver_with_providers(fake_driver: Path, fake_providers: Path) -> Iterator[None]:
    """In this process, two GPUs and libraries that compute on the host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTPACK_LIBCUDA", str(fake_driver))
        patch.setenv("AOTPACK_PROVIDER_PATH", str(fake_providers))
        patch.setenv("FAKE_CUDA_DEVICES", "9.0,9.0")
        yield
