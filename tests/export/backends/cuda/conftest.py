"""Running archives for GPUs without one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.torchless import ROOT, Torchless

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
    def run(kernels: Path, *archives: Path, code: int = 0) -> str:
        command = [sys.executable, "-m", "tests.support.interpreted_gpu.verify", str(fake_driver), str(kernels)]
        done = subprocess.run(
            [*command, *map(str, archives)],
            cwd=ROOT,
            env={**os.environ, "FAKE_CUDA_DEVICES": "9.0"},
            capture_output=True,
            text=True,
            check=False,
        )
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
