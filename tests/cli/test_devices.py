"""`--device`: commands on CUDA devices, with the driver without a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from aotpack.cli.app import app
from aotpack.cli.devices import other_device
from tests.support.archives import CompileC
from tests.support.cuda_archives import affine_archive, fake_cubin, with_golden

Archive = Callable[[str], Path]

X = np.arange(8, dtype=np.float32).reshape(2, 4)
Y = 2 * X + np.array([1, 2, 3, 4], np.float32)


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def invoke_json(*args: object, code: int = 0) -> dict[str, Any]:
    result = invoke(*args, "--json")
    assert result.exit_code == code, result.output
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


@pytest.fixture
def on_gpu(fake_driver: Path, tmp_path: Path, compile_c: CompileC, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with a module for cuda-sm_90 only, on a machine with two such devices."""
    monkeypatch.setenv("AOTPACK_LIBCUDA", str(fake_driver))
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "9.0,9.0")
    return affine_archive(tmp_path / "m.aotpack", compile_c)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_run(on_gpu: Path, tmp_path: Path, device: str) -> None:
    np.savez(tmp_path / "in.npz", x=X)
    value = invoke_json("run", on_gpu, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz", "--device", device)
    assert (value["device"], value["target"]) == (device, "cuda-sm_90")
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_array_equal(written["output"], Y)


def test_bench(on_gpu: Path) -> None:
    for graphs in ("0", "8"):
        value = invoke_json(
            "bench", on_gpu, "-n", 20, "--dim", "batch=3", "--device", "cuda:1", "--threads", 1, "--graphs", graphs
        )
        assert (value["device"], value["target"], value["iterations"]) == ("cuda:1", "cuda-sm_90", 20)
        assert value["inputs"] == [{"name": "x", "shape": [3, 4]}]
        assert value["back_to_back_seconds"] > 0
    assert "back to back" in invoke("bench", on_gpu, "-n", 2, "--device", "cuda:0").stdout


@pytest.mark.parametrize("wrong", [False, True])
def test_verify_runs_the_example_calls_on_the_device(on_gpu: Path, tmp_path: Path, *, wrong: bool) -> None:
    path = with_golden(on_gpu, tmp_path / "golden.aotpack", X, Y + wrong)
    value = invoke_json("verify", path, "--device", "cuda:1", code=int(wrong))
    assert value["device"] == "cuda:1"
    assert value["skipped"] is None
    assert [output["ok"] for output in value["outputs"]] == [not wrong]


def test_an_archive_without_a_module_for_the_host(on_gpu: Path) -> None:
    error = invoke_json("run", on_gpu, "--random", code=1)["error"]
    assert error["type"] == "UnsupportedTargetError"
    assert "cuda-sm_90: use --device cuda:0" in error["hint"]
    result = invoke("verify", on_gpu)
    assert result.exit_code == 0
    assert "use --device cuda:0" in result.stderr
    assert "use --device cuda:0" in invoke_json("verify", on_gpu, "--device", "cpu", code=1)["error"]["hint"]


@pytest.mark.parametrize("command", [["run", "--random"], ["verify"]])
def test_an_archive_without_a_module_for_the_device(on_gpu: Path, archive: Archive, command: list[str]) -> None:
    error = invoke_json(command[0], archive("affine"), *command[1:], "--device", "cuda:0", code=1)["error"]
    assert error["type"] == "UnsupportedTargetError"
    assert "use --device cpu" in error["hint"]


@pytest.mark.parametrize("command", [["run", "--random"], ["verify"]])
def test_a_device_that_does_not_exist(on_gpu: Path, command: list[str]) -> None:
    error = invoke_json(command[0], on_gpu, *command[1:], "--device", "cuda:2", code=1)["error"]
    assert "there is no cuda:2" in error["message"]
    assert "--device" not in (error["hint"] or "")


def test_a_hint_names_only_devices_with_a_module() -> None:
    assert other_device(["riscv64-next"], "cuda:0") is None
    assert other_device(["riscv64-next"], "cpu") is None
    assert other_device(["cuda-sm_90"], "cuda:0") is None
    assert "use --device cuda:0" in (other_device(["riscv64-next", "cuda-sm_90"], "cpu") or "")


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ((), "none"),
        (("k.cubin",), "machine code"),
        (("k.cubin", "k.ptx"), "machine code, PTX"),
        (("k.cubin", "other.ptx"), "machine code"),
        (("a.cubin", "a.ptx", "b.cubin"), "machine code, PTX of 1 of 2 kernels"),
    ],
)
def test_inspect_shows_the_code_for_devices(
    tmp_path: Path, compile_c: CompileC, names: tuple[str, ...], shown: str
) -> None:
    assets = {name: fake_cubin("sm_90", "affine") for name in names}
    result = invoke("inspect", affine_archive(tmp_path / "m.aotpack", compile_c, assets))
    assert result.exit_code == 0, result.output
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("default")]
    assert re.split(r" {2,}", row.strip())[-2] == shown
    assert "compiles the PTX when a model is loaded" in result.stdout


def test_inspect_shows_no_code_for_devices_without_such_a_target(archive: Archive) -> None:
    assert "device code" not in invoke("inspect", archive("affine")).stdout
