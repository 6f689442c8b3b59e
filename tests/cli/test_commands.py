"""The commands that need no torch, through typer's runner."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from aotpack.archive import write_archive
from aotpack.building.cache import BuildCache
from aotpack.cli.app import app
from tests.support.archives import Example, build_manifest, floats
from tests.support.recipes import AFFINE, RECIPES
from tests.test_docs import avoided

Archive = Callable[[str], Path]


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def invoke_json(*args: object, code: int = 0) -> dict[str, Any]:
    result = invoke(*args, "--json")
    assert result.exit_code == code, result.output
    value = json.loads(result.stdout)  # one object and nothing else
    assert isinstance(value, dict)
    return value


# ---- run ------------------------------------------------------------------------------------------------------------


def test_run_on_a_file(archive: Archive, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.arange(8, dtype=np.float32).reshape(2, 4))
    value = invoke_json("run", archive("affine"), "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert value["outputs"] == [
        {"name": "output", "dtype": "float32", "shape": [2, 4], "min": 1.0, "max": 29.0, "mean": 11.0}
    ]
    assert value["target"] == "x86-64-v3"
    with np.load(tmp_path / "out.npz") as written:
        assert written["output"].tolist() == [[1, 3, 7, 13], [5, 11, 19, 29]]


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ("failing", "code_only")])
def test_run_on_random_inputs(archive: Archive, name: str, tmp_path: Path) -> None:
    result = invoke("run", archive(name), "--random", "--threads", 1, "-o", tmp_path / "out.npz")
    assert result.exit_code == 0, result.output
    assert "loaded in" in result.stderr
    assert "loaded in" not in result.stdout
    first = dict(np.load(tmp_path / "out.npz"))
    assert list(first) == [output.name for output in RECIPES[name].outputs]


def test_random_inputs_have_the_dims_asked_for(archive: Archive) -> None:
    assert invoke_json("run", archive("affine"), "--random", "--dim", "batch=5")["outputs"][0]["shape"] == [5, 4]
    assert "no dim 'other'" in invoke("run", archive("affine"), "--random", "--dim", "other=5").stderr


def test_run_another_entry(archive: Archive) -> None:
    assert invoke_json("run", archive("counter"), "--random", "--entry", "again")["entry"] == "again"
    assert invoke("run", archive("counter"), "--random", "--entry", "nothing").exit_code == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "does not contain the input 'x'"),
        ({"x": np.zeros((2, 4), np.float32), "y": np.zeros(1)}, "contains 'y', which is not an input"),
        ({"x": np.zeros((2, 4))}, "float64"),
        ({"x": np.zeros((65, 4), np.float32)}, "batch"),
    ],
)
def test_wrong_input_files(archive: Archive, tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    result = invoke("run", archive("affine"), "--inputs", tmp_path / "in.npz")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == ""


def test_what_is_no_npz(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "one.npy", np.zeros(3))
    for name, message in (
        ("text.npz", "not an .npz file"),
        ("one.npy", "a single array"),
        ("nothing.npz", "no such file"),
    ):
        result = invoke("run", archive("affine"), "--inputs", tmp_path / name)
        assert result.exit_code == 1
        assert message in result.stderr


def test_numbers_come_from_a_file(archive: Archive, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.array([1, 2], np.float32), n=3, scale=2, flag=False)
    value = invoke_json("run", archive("numbers"), "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert [output["shape"] for output in value["outputs"]] == [[3], [], [], []]
    assert [output["dtype"] for output in value["outputs"]] == ["float64", "int64", "float64", "bool"]
    assert [output["mean"] for output in value["outputs"]] == [2.0, 5.0, 6.0, 1.0]
    with np.load(tmp_path / "out.npz") as written:
        assert written["y"].tolist() == [0, 2, 4]
        assert {name: written[name].item() for name in ("total", "product", "other")} == {
            "total": 5,
            "product": 6.0,
            "other": True,
        }
    np.savez(tmp_path / "in.npz", x=np.array([1, 2], np.float32), n=3.5, scale=2, flag=False)
    assert "'n'" in invoke("run", archive("numbers"), "-i", tmp_path / "in.npz").stderr


@pytest.mark.parametrize(
    ("name", "options", "shapes"),
    [
        ("numbers", [], [[1], [], [], []]),
        ("numbers", ["--dim", "n=7", "--dim", "rows=2"], [[7], [], [], []]),
        ("sizes", [], [[1, 4], [2]]),
        ("sizes", ["--dim", "batch=3"], [[3, 4], [6]]),
        ("variants", [], [[1, 1], [0]]),
        ("variants", ["--dim", "batch=4"], [[4, 1], [0]]),
        ("variants", ["--dim", "batch=3"], [[3, 8], [12]]),
        ("variants", ["--dim", "length=3"], [[1, 3], [1]]),
        ("quotient", [], [[]]),
    ],
)
def test_made_up_sizes_satisfy_what_calls_must(
    archive: Archive, name: str, options: list[str], shapes: list[list[int]]
) -> None:
    value = invoke_json("run", archive(name), "--random", *options)
    assert [output["shape"] for output in value["outputs"]] == shapes


@pytest.mark.parametrize(
    ("name", "dim", "message"),
    [
        ("sizes", "length=6", "'length') must be a multiple of 4, got 6"),
        ("variants", "batch=1025", "'general' needs 'batch' in [0, 1024], got 'batch' = 1025"),
        ("numbers", "n=11", "must be in [1, 10], got 11"),
        ("quotient", "n=3", "the size 12//(n - 3) is undefined for n = 3: division by zero"),
        ("quotient", "n=1", "the size 12//(n - 3) is -6 for n = 1"),
    ],
)
def test_made_up_sizes_that_do_not(archive: Archive, name: str, dim: str, message: str) -> None:
    result = invoke("run", archive(name), "--random", "--dim", dim)
    assert result.exit_code == 1
    assert message in result.stderr


# ---- bench, inspect, doctor -----------------------------------------------------------------------------------------


def test_bench(archive: Archive) -> None:
    value = invoke_json("bench", archive("affine"), "--iterations", 20, "--threads", 1)
    assert value["iterations"] == 20
    assert value["threads"] == 1
    assert 0 < value["min_seconds"] <= value["p50_seconds"] <= value["p90_seconds"]
    assert value["inputs"] == [{"name": "x", "shape": [2, 4]}]
    assert value["inputs_from"] == "the archive's example"
    value = invoke_json("bench", archive("affine"), "-n", 20, "--dim", "batch=8")
    assert value["inputs"] == [{"name": "x", "shape": [8, 4]}]
    assert value["items_per_second"] == pytest.approx(8 * value["calls_per_second"])
    assert "p90" in invoke("bench", archive("affine"), "-n", 2).stdout


def test_inspect(archive: Archive) -> None:
    value = invoke_json("inspect", archive("affine"))
    assert value["signatures"] == {
        "forward": "forward(x: float32[batch, 4]) -> float32[batch, 4] where batch in [1, 64]"
    }
    assert value["targets"] == ["x86-64-v3"]
    assert value["weight_bytes"] == 16
    assert value["size"] == archive("affine").stat().st_size
    assert value["constants"][0]["name"] == "w"
    text = invoke("inspect", archive("affine"), "--kernels", "--weights").stdout
    for expected in ("affine", "float32[batch, 4]", "kernel_0", "aten.mul.Tensor", "parameter"):
        assert expected in text
    assert "kernel_0" not in invoke("inspect", archive("affine")).stdout


def table_row(text: str, first: str) -> list[str]:
    """The columns of the row that begins so."""
    (line,) = [line for line in text.splitlines() if re.match(rf"{re.escape(first)}(  |$)", line)]
    return re.split(r" {2,}", line.strip())


def test_inspect_shows_when_variants_fit(archive: Archive) -> None:
    text = invoke("inspect", archive("variants")).stdout
    whens = {name: table_row(text, name)[-1] for name in ("batch=1", "even", "general")}
    assert whens == {
        "batch=1": "batch = 1",
        "even": "batch in [2, 64] by 2, length >= 1",
        "general": "batch in [0, 1024], batch*length % 8 == 0, trunc(batch*0.5) < 100 or false",
    }
    assert table_row(invoke("inspect", archive("affine")).stdout, "default")[-1] == "always"
    variants = invoke_json("inspect", archive("variants"))["entries"][0]["variants"]
    assert variants[0]["guards"] == [{"dim": "batch", "min": 1, "max": 1, "multiple_of": 1}]
    assert variants[2]["checks"][0] == {
        "text": "batch*length % 8 == 0",
        "code": ["$batch", "$length", "*", 8, "%", 0, "=="],
    }


def test_inspect_shows_dims_and_numbers(archive: Archive) -> None:
    text = invoke("inspect", archive("sizes")).stdout
    assert table_row(text, "batch") == ["batch", "1", "64", "1"]
    assert table_row(text, "length") == ["length", "0", "512", "4"]
    assert "[2*batch+1]" in text
    assert "[batch*length]" in text
    assert invoke_json("inspect", archive("sizes"))["entries"][0]["dims"][1]["multiple_of"] == 4
    text = invoke("inspect", archive("numbers")).stdout
    assert re.search(r"in +n +int +n +scalar", text)
    assert re.search(r"in +scale +float +scalar", text)
    assert re.search(r"out +other +bool +scalar", text)
    assert table_row(text, "rows") == ["rows", "0", "unbounded", "1"]
    (_, n, _, _) = invoke_json("inspect", archive("numbers"))["entries"][0]["inputs"]
    assert (n["number"], n["dim"], n["shape"]) == ("int", "n", [])


def test_bench_with_numbers(archive: Archive) -> None:
    value = invoke_json("bench", archive("numbers"), "-n", 3)
    assert value["inputs"][1] == {"name": "n", "shape": []}
    assert value["inputs_from"] == "the archive's example"


def test_inspect_an_archive_for_another_machine(tmp_path: Path) -> None:
    import dataclasses

    recipe = dataclasses.replace(AFFINE, target="riscv64-next")
    path = tmp_path / "foreign.aotpack"
    write_archive(path, *build_manifest(recipe, b"code of another machine"))
    assert invoke_json("inspect", path)["targets"] == ["riscv64-next"]
    assert "riscv64-next" in invoke("inspect", path).stdout
    value = invoke_json("verify", path)
    assert value["ok"]
    assert "riscv64-next" in value["skipped"]
    assert "were not run" in invoke("verify", path).stderr
    error = invoke_json("run", path, "--random", code=1)["error"]
    assert error["type"] == "UnsupportedTargetError"


def test_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(tmp_path))
    BuildCache().get("ab" * 32, ".o", lambda path: path.write_bytes(bytes(2048 - 65)) and None)
    value = invoke_json("doctor")
    assert value["ok"]
    checks = {check["name"]: check for check in value["checks"]}
    assert set(checks) == {"runtime", "host", "gpu", "compiler", "torch", "packages", "cache"}
    assert "1 files, 2.0 KB" in checks["cache"]["detail"]
    assert "C ABI 3" in checks["runtime"]["detail"]


def test_doctor_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (check,) = [check for check in invoke_json("doctor")["checks"] if check["name"] == "compiler"]
    assert check["status"] == "warning"
    assert "no-such-compiler" in check["detail"]
    assert "install g++" in check["hint"]


# ---- verify ---------------------------------------------------------------------------------------------------------


def test_verify(archive: Archive) -> None:
    value = invoke_json("verify", archive("affine"))
    assert value["ok"]
    assert value["outputs"] == [
        {
            "entry": "forward",
            "golden": 0,
            "output": "output",
            "error": 0.0,
            "tolerance": 1e-4,
            "problem": None,
            "ok": True,
        }
    ]
    result = invoke("verify", archive("affine"))
    assert result.exit_code == 0
    assert "all hashes match" in result.stdout
    assert "contains no example calls" in invoke("verify", archive("tuple")).stderr


def test_verify_numbers(archive: Archive) -> None:
    value = invoke_json("verify", archive("numbers"))
    assert value["ok"]
    assert [output["output"] for output in value["outputs"]] == ["y", "total", "product", "other"]
    assert [output["error"] for output in value["outputs"]] == [0.0] * 4


def with_golden(path: Path, archive: Archive, *values: float) -> Path:
    """The affine archive whose golden says that the outputs are these."""
    import dataclasses

    example = AFFINE.examples[0]
    wrong = Example(example.inputs, ((*example.outputs[0][:2], floats(*values)),), example.tolerance)
    from aotpack.archive import ArchiveReader

    with ArchiveReader(archive("affine")) as reader:
        code = reader.read("modules/x86-64-v3/forward.so")
    write_archive(path, *build_manifest(dataclasses.replace(AFFINE, examples=(wrong,)), code))
    return path


@pytest.mark.parametrize(
    ("values", "ok", "problem"),
    [
        ((1, 3, 7, 13, 5, 11, 19, 29.001), True, None),
        ((1, 3, 7, 13, 5, 11, 19, 29.1), False, None),
        ((1, 3, 7, 13, 5, 11, 19, float("nan")), False, "not finite"),
        ((1, 3, 7, 13, 5, 11, 19, float("inf")), False, "not finite"),
    ],
)
def test_verify_compares_outputs(
    archive: Archive, tmp_path: Path, values: tuple[float, ...], ok: bool, problem: str | None
) -> None:
    path = with_golden(tmp_path / "a.aotpack", archive, *values)
    value = invoke_json("verify", path, code=0 if ok else 1)
    (output,) = value["outputs"]
    assert value["ok"] is output["ok"] is ok
    if problem is None:
        assert output["error"] == pytest.approx(abs(29 - values[-1]) / values[-1], rel=1e-2)
    else:
        assert problem in output["problem"]


def test_verify_finds_a_flipped_bit(archive: Archive, tmp_path: Path) -> None:
    data = bytearray(archive("affine").read_bytes())
    data[data.index(floats(1, 2, 3, 4))] ^= 1
    (tmp_path / "flipped.aotpack").write_bytes(data)
    error = invoke_json("verify", tmp_path / "flipped.aotpack", code=1)["error"]
    assert error["type"] == "TamperedArchiveError"


# ---- all of them ----------------------------------------------------------------------------------------------------

COMMANDS = ["build", "pack", "run", "bench", "inspect", "verify", "doctor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"aotpack {command}" in result.stdout
    assert "--json" in result.stdout
    assert avoided(" ".join(result.stdout.replace("│", " ").split())) == []


@pytest.mark.parametrize("command", [["run", "--random"], ["bench"], ["inspect"], ["verify"]])
def test_archives_that_are_none(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, world" * 1000)
    for path, kind in ((tmp_path / "nothing", "ArchiveNotFoundError"), (tmp_path / "text", "ForeignArchiveError")):
        result = invoke(command[0], path, *command[1:])
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert "Traceback" not in result.stderr
        assert invoke_json(command[0], path, *command[1:], code=1)["error"]["type"] == kind


@pytest.mark.parametrize(
    "args",
    [
        ["run", "x.aotpack"],
        ["run", "x.aotpack", "--random", "--inputs", "y.npz"],
        ["run", "x.aotpack", "--inputs", "y.npz", "--dim", "n=1"],
        ["run", "x.aotpack", "--random", "--dim", "n"],
        ["run", "x.aotpack", "--random", "--threads", "0"],
        ["run", "x.aotpack", "--random", "--device", "gpu"],
        ["run", "x.aotpack", "--random", "--device", "cuda:"],
        ["verify", "x.aotpack", "--device", "cpu:0"],
        ["bench", "x.aotpack", "--dim", "n=-1"],
        ["bench", "x.aotpack", "--iterations", "0"],
        ["inspect"],
        ["nothing"],
        ["build", "model.py"],
    ],
)
def test_wrong_usage_ends_with_2(args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == "" or len(args) == 1
