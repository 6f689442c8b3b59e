"""What `aotpack doctor` says of GPUs, with the driver without a GPU."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aotpack.cli import libraries
from aotpack.cli.app import app
from aotpack.cli.gpus import OLDEST_DRIVER, version_text
from aotpack.runtime.providers import FILES, installed_folders

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu_check(fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Runs doctor with these devices and version. The driver reads them once: each test loads a copy of its own."""

    def check(devices: str, version: int = 12040) -> dict[str, str]:
        monkeypatch.setenv("AOTPACK_LIBCUDA", str(shutil.copy(fake_driver, tmp_path / "libcuda.so.1")))
        monkeypatch.setenv("FAKE_CUDA_DEVICES", devices)
        monkeypatch.setenv("FAKE_CUDA_VERSION", str(version))
        return found()

    return check


def found(name: str = "gpu") -> dict[str, str]:
    (check,) = all_found(name)
    return check


def all_found(name: str) -> list[dict[str, str]]:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    return [check for check in json.loads(result.stdout)["checks"] if check["name"] == name]


def test_gpus_are_listed(gpu_check: Callable[..., dict[str, str]]) -> None:
    check = gpu_check("9.0,12.0")
    assert check["status"] == "ok"
    assert "driver for CUDA 12.4; cuda:0 Fake GPU 0 (compute capability 9.0, " in check["detail"]
    assert re.search(r"cuda:1 Fake GPU 1 \(compute capability 12\.0, [\d.]+ [KMG]B\)$", check["detail"])


def test_a_driver_that_is_too_old(gpu_check: Callable[..., dict[str, str]]) -> None:
    check = gpu_check("9.0", 11080)
    assert check["status"] == "warning"
    assert "too old: it supports CUDA 11.8" in check["detail"]
    assert "CUDA 12.0 or later" in check["hint"]


def test_a_driver_without_devices(gpu_check: Callable[..., dict[str, str]]) -> None:
    check = gpu_check("")
    assert check["status"] == "warning"
    assert check["detail"] == "none: the CUDA driver finds no device"
    assert "CUDA_VISIBLE_DEVICES" in check["hint"]


def test_libraries_that_archives_may_ask_for(
    gpu_check: Callable[..., dict[str, str]], fake_providers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTPACK_PROVIDER_PATH", "/nonexistent")
    monkeypatch.setattr(libraries, "installed_folders", lambda: [str(fake_providers)])
    gpu_check("9.0")
    assert found("providers")["detail"].startswith("cublaslt 12.8.0, cudnn 9.5.0, cufft 12.0.0, cusolver 12.0.0 (")
    monkeypatch.setenv("FAKE_PROVIDER_VERSION", "13105")
    assert "cufft 13.1.5 (not used: versions 11 and 12 are)" in found("providers")["detail"]
    assert "cublaslt 1.31.5 (not used: versions 12 and 13 are)" in found("providers")["detail"]
    monkeypatch.setenv("FAKE_PROVIDER_VERSION", "8902")
    assert "cudnn 8.9.2, " in found("providers")["detail"]
    monkeypatch.setattr(libraries, "installed_folders", list)
    assert found("providers")["detail"].startswith("none")
    monkeypatch.setenv("AOTPACK_LIBCUDA", str(tmp_path / "nothing.so"))
    assert not all_found("providers")


def test_folders_of_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = installed_folders()
    for name in ("cu13/lib/libcufft.so.12", "cusolver/lib/libcusolver.so.11", "nccl/lib/libnccl.so.2", "empty/x"):
        (tmp_path / "nvidia" / name).parent.mkdir(parents=True)
        (tmp_path / "nvidia" / name).touch()
    importlib.invalidate_caches()
    folders = [str(tmp_path / "nvidia" / name / "lib") for name in ("cu13", "cusolver")]
    assert installed_folders() == [*folders, *before]


def test_libraries_are_those_of_the_runtime() -> None:
    for provider, files in FILES.items():
        text = (ROOT / "csrc/runtime/hal/cuda" / f"{provider}.cpp").read_text()
        assert re.findall(r"lib\w+\.so\.\d+", text) == list(files)
        known = libraries.VERSIONS[provider]
        first, end = known.first * known.major, (known.last + 1) * known.major
        assert f"version >= {first} && version < {end}" in text


def test_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTPACK_LIBCUDA", str(tmp_path / "nothing.so"))
    check = found()
    assert check["status"] == "ok"
    assert check["detail"].startswith("none: no CUDA driver was found")


def test_a_library_that_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTPACK_LIBCUDA", "libc.so.6")
    check = found()
    assert check["status"] == "warning"
    assert "lacks the function cuDriverGetVersion" in check["detail"]


def test_the_runtime_needs_the_same_driver() -> None:
    header = (ROOT / "csrc/runtime/hal/cuda/driver_functions.h").read_text()
    (version,) = re.findall(r"kOldestDriver = (\d+);", header)
    assert int(version) == OLDEST_DRIVER
    assert version_text(OLDEST_DRIVER) == "12.0"
