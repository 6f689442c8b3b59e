"""What `aotpack doctor` says of GPUs, with the driver without a GPU."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aotpack.cli.app import app
from aotpack.cli.gpus import OLDEST_DRIVER, version_text

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


def found() -> dict[str, str]:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "gpu"]
    assert isinstance(check, dict)
    return check


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
