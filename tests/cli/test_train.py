"""`aotpack train`: the same steps as calls make, checkpoints, runs that go on, and what is wrong with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import aotpack
from aotpack.cli.checkpoints import Checkpoints
from aotpack.cli.signals import Terminated, terminated_in_order
from aotpack.cli.training_data import read_samples
from aotpack.cli.training_loop import run_steps
from aotpack.runtime import Entry
from tests.cli.test_commands import invoke, invoke_json

pytestmark = pytest.mark.torch

ROWS = 70


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    pytest.importorskip("torch")
    import torch
    from torch import nn

    from aotpack.export import BuildOptions, TrainingOptions, aot_export, build_archive

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))
    program = aot_export(
        model,
        (torch.randn(4, 8),),
        mode="train_step",
        loss=nn.functional.cross_entropy,
        loss_args=(torch.zeros(4, dtype=torch.int64),),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        dynamic_shapes={"input": {0: aotpack.Dim("batch", 1, 32)}, "target": {0: "batch"}},
        training=TrainingOptions(hyperparameters=("lr",)),
    )
    path = tmp_path_factory.mktemp("train") / "model.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((ROWS, 8)).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, input=inputs, target=inputs[:, :4].argmax(1))
    return path


def state(path: Path) -> bytes:
    return path.read_bytes()


def test_steps_are_those_of_calls(archive: Path, data: Path, tmp_path: Path) -> None:
    found = invoke_json(
        "train", archive, "--data", data, "--epochs", 2, "--lr", 0.1, "-o", tmp_path / "out", "--seed", 3
    )
    assert (found["samples"], found["batch"], found["steps"]) == (ROWS, 32, 4)
    arrays = np.load(data)
    context = aotpack.load(archive).context(seed=3, check_finite=True)
    step = context.entry("train_step")
    losses = []
    for epoch in range(2):
        order = np.random.default_rng([3, epoch]).permutation(ROWS)
        for rows in (np.sort(order[:32]), np.sort(order[32:64])):
            losses.append(float(step(arrays["input"][rows], arrays["target"][rows], lr=0.1)["loss"]))
    assert found["losses"] == losses
    context.save_state(tmp_path / "own.safetensors")
    assert state(tmp_path / "own.safetensors") == state(Path(found["checkpoint"]))
    assert losses[-1] < losses[0]


def test_a_run_goes_on(archive: Path, data: Path, tmp_path: Path) -> None:
    """In a folder of arrays, with another batch, as one run would have."""
    folder = tmp_path / "arrays"
    folder.mkdir()
    for name, array in np.load(data).items():
        np.save(folder / f"{name}.npy", array)
    settings = ("--data", folder, "--set", "lr=0.05", "--batch", 10)
    whole = invoke_json("train", archive, *settings, "--steps", 12, "-o", tmp_path / "whole", "--save-every", 2)
    assert sorted(path.name[-14:-12] for path in (tmp_path / "whole").iterdir()) == ["08", "10", "12"]
    first = invoke_json("train", archive, *settings, "--steps", 5, "-o", tmp_path / "parts")
    rest = invoke_json("train", archive, *settings, "--steps", 12, "-o", tmp_path / "parts", "--resume")
    assert rest["first_step"] == 5
    assert first["losses"] + rest["losses"] == whole["losses"]
    assert state(Path(rest["checkpoint"])) == state(Path(whole["checkpoint"]))
    # Nothing is left to do.
    assert invoke_json("train", archive, *settings, "--steps", 12, "-o", tmp_path / "parts", "--resume")["losses"] == []
    result = invoke("train", archive, *settings, "--steps", 12, "-o", tmp_path / "parts")
    assert result.exit_code == 1
    assert "use --resume" in result.stderr


def test_a_run_that_is_stopped_leaves_its_last_step(archive: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["train", archive, "--data", data, "--steps", 10**7, "--lr", 0.01, "-o", out, "--save-every", 50]
    process = subprocess.Popen([sys.executable, "-m", "aotpack.cli.app", *map(str, command)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (out.is_dir() and any(out.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    steps = int(max(path.name for path in out.iterdir())[5:13])
    same = invoke_json("train", archive, "--data", data, "--steps", steps, "--lr", 0.01, "-o", tmp_path / "again")
    (newest,) = (path for path in out.iterdir() if path.name == Path(same["checkpoint"]).name)
    assert state(newest) == state(Path(same["checkpoint"]))


def test_a_signal_right_after_a_step_waits_for_its_number(archive: Path, data: Path, tmp_path: Path) -> None:
    """The checkpoint has the state of as many steps as its name says."""

    class Signalled:
        def __init__(self, entry: Entry) -> None:
            self.entry, self.runs = entry, 0

        def run(self, arrays: Any) -> Any:
            outputs, self.runs = self.entry.run(arrays), self.runs + 1
            if self.runs == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return outputs

    model = aotpack.load(archive)
    (signature,) = (entry.signature for entry in model.manifest.entries if entry.name == "train_step")
    samples, context = read_samples(data, signature, 8, 0), model.context(seed=0)
    entry, saved = cast("Entry", Signalled(context.entry("train_step"))), Checkpoints(tmp_path / "out", 100, 1)
    with terminated_in_order() as interruption, pytest.raises(Terminated):
        run_steps(entry, signature, samples, {"lr": 0.1}, range(9), saved, context, interruption)
    settings = ("--data", data, "--lr", 0.1, "--batch", 8, "--steps", 3)
    same = invoke_json("train", archive, *settings, "-o", tmp_path / "again")
    (stopped,) = (tmp_path / "out").iterdir()
    assert stopped.name == Path(same["checkpoint"]).name
    assert state(stopped) == state(Path(same["checkpoint"]))


def test_a_loss_that_is_not_finite_ends_the_run(archive: Path, data: Path, tmp_path: Path) -> None:
    result = invoke("train", archive, "--data", data, "--steps", 9, "--lr", 1e30, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "is not finite" in result.stderr
    # That of the last step whose loss was.
    assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", 1), "the archive also takes lr"),
        (("--steps", 1, "--lr", 0.1, "--set", "beta=1"), "does not take beta"),
        (("--steps", 1, "--set", "lr=fast"), "'lr=fast' is not NAME=VALUE"),
        (("--lr", 0.1), "either --steps or --epochs"),
        (("--steps", 1, "--lr", 0.1, "--resume"), "require --checkpoints"),
        (("--steps", 1, "--lr", 0.1, "--batch", 33), "dim 0 ('batch') must be in [1, 32], got 33"),
        (("--steps", 1, "--lr", 0.1, "--batch", 99), "less than a batch of 99"),
    ],
)
def test_wrong_requests(archive: Path, data: Path, arguments: tuple[object, ...], message: str) -> None:
    result = invoke("train", archive, "--data", data, *arguments)
    assert result.exit_code != 0
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_wrong_data(archive: Path, data: Path, tmp_path: Path) -> None:
    arrays = dict(np.load(data))
    np.savez(tmp_path / "short.npz", input=arrays["input"][:9], target=arrays["target"])
    np.savez(tmp_path / "other.npz", x=arrays["input"], target=arrays["target"])
    for name, message in (("short.npz", "different numbers of rows"), ("other.npz", "does not contain the input")):
        result = invoke("train", archive, "--data", tmp_path / name, "--steps", 1, "--lr", 0.1)
        assert result.exit_code == 1
        assert message in result.stderr
    result = invoke("train", archive, "--data", tmp_path, "--steps", 1, "--lr", 0.1)
    assert "input.npy" in result.stderr


def test_the_curve(archive: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "loss.png"
    invoke_json("train", archive, "--data", data, "--steps", 5, "--lr", 0.1, "--plot", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
