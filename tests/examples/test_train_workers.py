"""Several workers train what one trains with whole batches, also if one of them dies on the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import aotpack

from .conftest import EXAMPLES, build, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    return build(EXAMPLES / "train_ray" / "model.py", tmp_path_factory.mktemp("workers") / "train.aotpack")


def test_ray(archive: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'aotpack[ray]'")
    script = EXAMPLES / "train_ray" / "train.py"
    output = run(sys.executable, script, archive, "--workers", "4", "--steps", "30", "--kill", "10")
    report = json.loads(output.splitlines()[-1])
    assert report["replaced"] == 1
    assert report["difference"] <= TOLERANCE
    assert len(report["losses"]) == 30
    assert report["losses"][-1] < 0.7 * report["losses"][0]


def test_gloo(archive: Path, tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    script = EXAMPLES / "train_gloo" / "train.py"
    options = ("--max-restarts", "1", script, archive, tmp_path / "checkpoint.safetensors")
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    output = run(*torchrun, *options, "--steps", "14", "--kill", "12", **environment)
    assert "goes on from step 10" in output
    lines = [line.split() for line in output.splitlines() if line.startswith("step ")]
    # The steps after the checkpoint are made again.
    assert [int(line[1].rstrip(":")) for line in lines] == [*range(12), *range(10, 14)]
    losses = _of_one(archive, 14)
    assert all(abs(float(line[3]) - losses[int(line[1].rstrip(":"))]) <= TOLERANCE for line in lines)


def _of_one(archive: Path, steps: int) -> list[float]:
    """The losses of one context with whole batches."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    images, labels = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8), digits.astype(np.int64)
    train_step = aotpack.load(archive).context(num_threads=1).entry("train_step")
    losses = []
    for step in range(steps):
        rows = np.random.default_rng(step).choice(len(images), 64, replace=False)
        losses.append(float(train_step(images[rows], labels[rows], lr=0.003 / (1 + step / 20))["loss"]))
    return losses
