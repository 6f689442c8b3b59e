import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import engines, measure, run, worker
from bench.engines import aotpack_bytes_engine
from bench.process import ROOT, Worker, WorkerError, build


def test_the_list_of_models_is_that_of_the_definitions() -> None:
    pytest.importorskip("torch")
    from bench import models

    assert list(models.MODELS) == run.MODELS
    assert list(models.GPU_MODELS) == run.GPU_MODELS


def test_batch_norms_get_statistics_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    from bench import models

    norm = torch.nn.BatchNorm2d(4)
    models.settle_batch_norms(torch.nn.Sequential(norm))
    assert norm.running_mean.abs().max() > 0
    assert (norm.running_var != 1).all()
    assert (norm.weight != 1).all()


@pytest.mark.parametrize("name", ["mlp", "dlrm", "lstm"])
def test_a_model_is_the_same_every_time(name: str) -> None:
    torch = pytest.importorskip("torch")
    from bench import models

    outputs = []
    for _ in range(2):
        module, args = models.build(name)
        with torch.inference_mode():
            outputs.append(module(*args))
    assert torch.equal(*outputs)
    assert outputs[0].isfinite().all()


def test_an_unknown_engine_or_model_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="there are eager"):
        engines.get("tensorflow")
    with pytest.raises(SystemExit) as status:
        run.main(["--models", "mlp,alexnet"])
    assert status.value.code == 2
    assert "alexnet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "counts"), [("2", [2]), ("1,4,2", [4, 2, 1]), ("1,all", sorted({1, len(os.sched_getaffinity(0))})[::-1])]
)
def test_numbers_of_threads(words: str, counts: list[int]) -> None:
    assert run.parse(["--threads", words]).threads == counts


@pytest.mark.parametrize("words", ["0", "two", "1,,2", ""])
def test_other_numbers_of_threads_are_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.parse(["--threads", words])
    assert "--threads" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["python", f"theano={sys.executable}", "eager=", "eager=/none/python"])
def test_interpreters_exist_and_belong_to_engines(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.parse(["--python", f"executorch={sys.executable}"]).python == {"executorch": sys.executable}
    with pytest.raises(SystemExit):
        run.parse(["--python", word])
    assert "ENGINE=PYTHON" in capsys.readouterr().err


def test_quantiles() -> None:
    values = [float(value) for value in range(1, 11)]
    assert measure.quantile(values, 0.5) == 6.0
    assert measure.quantile(values, 0.9) == 10.0
    assert measure.quantile([3.0], 0.9) == 3.0


def test_measure_makes_three_calls_at_least_and_stops_at_the_most() -> None:
    calls: list[None] = []
    assert len(worker.measure(lambda: calls.append(None), 0.0, 100)) == 3
    assert len(worker.measure(lambda: calls.append(None), 60.0, 5)) == 5
    assert len(calls) == 8


def test_memory_is_that_of_this_process() -> None:
    before = worker.memory()
    # An array could lie where an earlier one did, whose pages the process still has.
    with mmap.mmap(-1, 50_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(bytes(50_000_000))
        after = worker.memory()
    assert int(after["anonymous"]) - int(before["anonymous"]) > 40_000_000  # type: ignore[call-overload]
    assert int(after["peak"]) >= int(before["peak"]) > 1_000_000  # type: ignore[call-overload]
    assert "numpy" in after["modules"]


def test_compare_is_relative_to_the_scale(tmp_path: Path) -> None:
    expected = np.array([100.0, 1.0], np.float32)
    np.save(tmp_path / "expected.npy", expected)
    path = str(tmp_path / "expected.npy")
    assert worker.compare([expected], path) == 0
    assert worker.compare([expected + np.float32(1)], path) == pytest.approx(0.01)
    assert worker.compare([expected[:1]], path) == float("inf")
    assert worker.compare([], path) == float("inf")
    assert worker.compare([np.array([100.0, np.nan], np.float32)], path) == float("inf")


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(WorkerError, match=r"none\.pt"):
        Worker("eager", str(tmp_path / "none.pt"), [], 1, tmp_path / "cache")


def test_a_build_and_a_worker_that_exceed_their_limits_are_stopped(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"building mlp with eager exceeds 0\.2 s"):
        build("eager", "mlp", tmp_path / "build", 1, limit=0.2)
    with pytest.raises(WorkerError, match="ended with -9"):
        Worker("eager", "none.pt", [], 1, tmp_path / "cache", limit=0.1)


def test_a_short_run_from_start_to_table(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench.run", "--quick", "--models", "mlp", "--engines", "eager"]
    command += ["--jobs", "2", "--without", "resnet18:eager", "--threads", "1,2", "-o", str(output)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    models = json.loads(output.read_text())["models"]
    assert list(models) == ["mlp", "mlp@1"]
    figures = models["mlp"]["eager"]
    assert models["mlp@1"]["eager"]["build_s"] == figures["build_s"]
    assert models["mlp@1"]["eager"]["p50_s"] > 0
    assert figures["max_error"] == 0
    assert figures["calls"] >= 9
    assert 0 < figures["p50_s"] <= figures["p90_s"] < figures["start_s"]
    assert figures["peak_rss"] > 50_000_000
    assert "torch" in figures["first_memory"]["modules"]
    assert done.stdout.startswith("mlp                eager ")


def test_kept_builds_are_measured_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    kept = tmp_path / "kept"
    words = ["--quick", "--rounds", "1", "--starts", "0", "--models", "mlp", "--engines", "eager"]
    words += ["--keep", str(kept), "-o", str(tmp_path / "results.json")]
    assert run.main(words) == 0
    artifact = Path(json.loads((kept / "mlp" / "eager" / "build.json").read_text())["artifact"])
    built = artifact.stat().st_mtime_ns
    assert run.main([*words, "--reuse", "all"]) == 0
    assert artifact.stat().st_mtime_ns == built
    assert json.loads((tmp_path / "results.json").read_text())["models"]["mlp"]["eager"]["p50_s"] > 0
    assert run.main(words) == 0
    assert artifact.stat().st_mtime_ns > built


@pytest.mark.parametrize(("words", "message"), [(["--reuse", "all"], "--keep"), (["--reuse", "theano"], "theano")])
def test_builds_of_other_runs_have_a_folder_and_an_engine(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run.parse(words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3, 4, 5)])
def test_inputs_are_read_without_numpy(tmp_path: Path, dtype: type, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    np.save(tmp_path / "input.npy", array)
    np.testing.assert_array_equal(np.asarray(aotpack_bytes_engine.read(str(tmp_path / "input.npy"))), array)
