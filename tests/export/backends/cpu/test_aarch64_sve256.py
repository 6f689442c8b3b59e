"""Archives for 64-bit ARM with SVE of 256 bits: they match eager there, and are never chosen for vectors of another
length.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.export.backends.cpu.test_aarch64 import MODELS, Mlp, built
from tests.support import emulated
from tests.support.building import assert_close, told_of_module

TARGET = "aarch64-sve256"
SVE256 = "max,sve256=on"

pytestmark = [
    pytest.mark.skipif(emulated.AARCH64_CXX is None, reason="there is no aarch64-linux-gnu-g++"),
    pytest.mark.skipif(emulated.AARCH64 is None, reason="there is no qemu-aarch64"),
]


def called(cpu: str, path: Path, folder: Path, *inputs: Tensor) -> str:
    """Calls an archive on a processor of QEMU's; returns the target of its module."""
    done = emulated.aarch64(cpu).run(path, folder, *(x.numpy() for x in inputs))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def output(folder: Path, expected: Tensor, number: int = 0) -> Tensor:
    found = np.fromfile(folder / f"out{number}", expected.numpy().dtype)
    return torch.from_numpy(found).reshape(expected.shape)


@pytest.mark.parametrize("name", MODELS)
def test_models_match_eager(cache_dir: Path, tmp_path: Path, name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    x = torch.randint(50, shape) if name == "encoder" else torch.randn(shape)
    path = built(model, x, tmp_path, cache_dir, (TARGET,))
    assert called(SVE256, path, tmp_path, x) == TARGET
    with torch.no_grad():
        expected = model(x)
    assert_close(output(tmp_path, expected), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precisions(cache_dir: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    class Half(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.to(dtype)).float()

    torch.manual_seed(0)
    model, x = Half().to(dtype).eval(), torch.randn(5, 33)
    assert called(SVE256, built(model, x, tmp_path, cache_dir, (TARGET,)), tmp_path, x) == TARGET
    with torch.no_grad():
        expected = model(x)
    assert_close(output(tmp_path, expected), expected, 2e-2)


# The best target of each processor of QEMU's: `max` has vectors of up to 2048 bits, of which programs get 512.
BEST = {
    "cortex-a57": "aarch64",
    "neoverse-n1": "aarch64-dotprod",
    "max,sve=off": "aarch64-bf16",
    "max,sve128=on": "aarch64-bf16",
    SVE256: TARGET,
    "max": "aarch64-bf16",
    "a64fx": "aarch64",
}


def test_the_best_of_several_targets_is_chosen(cache_dir: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Mlp().eval(), torch.randn(5, 33)
    path = built(model, x, tmp_path, cache_dir, (TARGET, "aarch64", "aarch64-dotprod", "aarch64-bf16"))
    with torch.no_grad():
        expected = model(x)
    for cpu, best in BEST.items():
        assert called(cpu, path, tmp_path, x) == best
        assert_close(output(tmp_path, expected), expected)


def test_vectors_of_another_length_refuse_the_archive(cache_dir: Path, tmp_path: Path) -> None:
    x = torch.randn(5, 33)
    path = built(Mlp().eval(), x, tmp_path, cache_dir, (TARGET,))
    length = "SVE vectors of 256 bits"
    for cpu, missing in {
        "max": length,
        "max,sve128=on": length,
        "max,sve=off": f"sve, svei8mm, svebf16, {length}",
        "neoverse-n1": f"i8mm, bf16, sve, svei8mm, svebf16, {length}",
    }.items():
        refused = emulated.aarch64(cpu).run(path, tmp_path, x.numpy())
        assert refused.returncode == 1
        assert f"{TARGET} needs {missing} (" in refused.stderr


def test_products_are_of_whole_registers(cache_dir: Path, tmp_path: Path) -> None:
    path = built(nn.Linear(64, 64), torch.randn(24, 64), tmp_path, cache_dir, (TARGET,))
    code = told_of_module(path, TARGET, tmp_path, "aarch64-linux-gnu-objdump", "-d")
    assert len(re.findall(r"\tfmla\tz\d+\.s, p\d/m, z\d+\.s, z\d+\.s", code)) > 100
    assert not re.findall(r"\tfmla\tv\d+\.4s", code)
