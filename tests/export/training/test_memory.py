"""What a step of training needs in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from aotpack.export import BuildOptions, aot_export, build_archive

pytestmark = pytest.mark.torch

LAYERS, WIDTH = 10, 768

_RUN = f"""
import sys
import aotpack, numpy as np

def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) * 1024

x = np.zeros((4, {WIDTH}), np.float32)
context = aotpack.load(sys.argv[1], num_threads=1).context()
step = context.entry("train_step")
before = peak()
for _ in range(3):
    step(x, x)
print(peak() - before)
"""


def test_gradients_do_not_exist_all_at_once(tmp_path: Path, cache_dir: Path) -> None:
    """Each is freed when its parameter has been updated, in place."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    model, x = nn.Sequential(*layers), torch.randn(4, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    program = aot_export(
        model, (x,), mode="train_step", loss=nn.functional.mse_loss, loss_args=(x,), optimizer=optimizer
    )
    path = tmp_path / "deep.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, check=False, goldens=False))
    done = subprocess.run([sys.executable, "-c", _RUN, path], check=True, capture_output=True, text=True)
    parameters = LAYERS * WIDTH * WIDTH * 4
    # The context has parameters and two moments. All gradients together would be as much as the parameters.
    assert int(done.stdout) - 3 * parameters < 0.4 * parameters
