"""Commands with `--device` on a GPU: `python -m pytest -n 0 tests/gpu`. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aotpack.cli.app import app
from aotpack.cli.gpus import Gpu, find_gpus
from aotpack.errors import DeviceError
from tests.gpu.kernels import ptx
from tests.support.archives import CompileC
from tests.support.cuda_archives import affine_archive, with_golden

W = np.array([1, 2, 3, 4], np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def _gpus() -> list[Gpu]:
    try:
        return find_gpus()[1]
    except DeviceError:
        return []


GPUS = _gpus()
pytestmark = pytest.mark.skipif(not GPUS or GPUS[0].capability < (8, 0), reason="no GPU of capability 8.0 or later")


def invoke_json(*args: object, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*map(str, args), "--json"])
    assert result.exit_code == code, result.output
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


@pytest.fixture
def path(tmp_path: Path, compile_c: CompileC) -> Path:
    """y = 3 * x + w, from PTX."""
    if GPUS[0].capability[0] == 8:
        pytest.skip("this device runs the cubin")
    assets = {"affine.cubin": b"not code", "affine.ptx": ptx("affine")}
    return affine_archive(tmp_path / "m.aotpack", compile_c, assets, "cuda-sm_80")


def test_run(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X)
    value = invoke_json("run", path, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz", "--device", "cuda:0")
    assert (value["device"], value["target"]) == ("cuda:0", "cuda-sm_80")
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_array_equal(written["output"], 3 * X + W)


@pytest.mark.parametrize("graphs", [0, 8])
def test_bench(path: Path, graphs: int) -> None:
    value = invoke_json("bench", path, "--dim", "batch=8", "--device", "cuda:0", "--graphs", graphs, "-n", 1000)
    assert value["device"] == "cuda:0"
    print(f"graphs={graphs}: p50 {1e6 * value['p50_seconds']:.1f} us, {1e6 * value['back_to_back_seconds']:.1f} us")


@pytest.mark.parametrize("wrong", [False, True])
def test_verify(path: Path, tmp_path: Path, *, wrong: bool) -> None:
    golden = with_golden(path, tmp_path / "golden.aotpack", X, 3 * X + W + wrong)
    value = invoke_json("verify", golden, "--device", "cuda:0", code=int(wrong))
    assert value["device"] == "cuda:0"
    assert [output["ok"] for output in value["outputs"]] == [not wrong]


def test_doctor_lists_the_gpu() -> None:
    (check,) = [check for check in invoke_json("doctor")["checks"] if check["name"] == "gpu"]
    assert check["status"] == "ok"
    assert f"cuda:0 {GPUS[0].name}" in check["detail"]
    assert GPUS[0].memory > 1 << 30
