"""The C++ program trains as well as eager does, and goes on from its checkpoints with the same results."""

from __future__ import annotations

import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import aotpack

from .conftest import EXAMPLES, build, load_module, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]

FOLDER = EXAMPLES / "train_cpp"
EPOCHS = 20
KILLS = 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive, the data, the program, and the checkpoint and output of a run."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("train_cpp")
    build(FOLDER / "model.py", folder / "train.aotpack")
    run(sys.executable, FOLDER / "data.py", folder / "digits")
    options = [f"-Daotpack_DIR={aotpack.cmake_dir()}", "-DCMAKE_BUILD_TYPE=Release"]
    run("cmake", "-S", FOLDER, "-B", folder / "program", *options)
    run("cmake", "--build", folder / "program")
    (folder / "output.txt").write_text(run(*command(folder, "whole.safetensors")))
    return folder


def command(folder: Path, checkpoint: str) -> list[str | Path]:
    return [folder / "program" / "train", folder / "train.aotpack", folder / "digits", folder / checkpoint, str(EPOCHS)]


def test_accuracy_is_that_of_eager(trained: Path) -> None:
    lines = (trained / "output.txt").read_text().splitlines()
    assert len(lines) == EPOCHS
    eager = statistics.median(_of_eager(trained, seed) for seed in range(3))
    assert abs(float(lines[-1].rpartition(" ")[2]) - eager) <= 0.005


def test_the_program_is_itself(trained: Path) -> None:
    """It maps the runtime, and neither Python nor torch."""
    process = subprocess.Popen(command(trained, "mapped.safetensors"), stdout=subprocess.DEVNULL)
    maps = ""
    deadline = time.monotonic() + 60
    while not (trained / "mapped.safetensors").exists() and time.monotonic() < deadline:
        maps = Path(f"/proc/{process.pid}/maps").read_text() or maps
    process.kill()
    process.wait()
    assert "libaotpack" in maps
    assert "libpython" not in maps
    assert "libtorch" not in maps


def test_killed_runs_go_on_with_the_same_results(trained: Path) -> None:
    """Each run is killed at random moments, while it saves too, until it is at its end."""
    whole, output = (trained / "whole.safetensors").read_bytes(), (trained / "output.txt").read_text()
    moments, kills, checkpoint = random.Random(0), 0, trained / "killed.safetensors"
    began = time.monotonic()
    run(*command(trained, "timed.safetensors"))
    seconds = time.monotonic() - began
    while kills < KILLS:
        process = subprocess.Popen(command(trained, checkpoint.name), stdout=subprocess.PIPE, text=True)
        try:
            printed = process.communicate(timeout=moments.uniform(0, seconds / 3))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            printed = process.communicate()[0]
        if process.returncode == -signal.SIGKILL:
            kills += 1
            continue
        assert process.returncode == 0
        assert output.endswith(printed)
        assert checkpoint.read_bytes() == whole
        checkpoint.unlink()
    assert output.endswith(run(*command(trained, checkpoint.name)))
    assert checkpoint.read_bytes() == whole


def _of_eager(folder: Path, seed: int) -> float:
    """The accuracy of the same training by torch, with other random numbers."""
    import torch

    module = load_module(FOLDER / "model.py")
    data = {}
    for name in ("train", "heldout"):
        pixels = np.fromfile(folder / "digits" / f"{name}.f32", "<f4").reshape(-1, 1, 8, 8)
        data[name] = torch.from_numpy(pixels), torch.from_numpy(np.fromfile(folder / "digits" / f"{name}.i64", "<i8"))
    network = module.model().train()
    torch.manual_seed(seed)
    optimizer = module.optimizer(network)
    images, labels = data["train"]
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = 0.005 / (1 + epoch)
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            module.loss(network(images[rows]), labels[rows]).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    images, labels = data["heldout"]
    with torch.no_grad():
        return float((network.eval()(images).argmax(1) == labels).double().mean())
