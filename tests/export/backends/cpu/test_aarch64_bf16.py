"""Archives with bf16 for 64-bit ARM with its instructions for it: they match eager on an emulated processor."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support import emulated
from tests.support.building import assert_close, told_of_module

# Of processors of QEMU's.
TARGETS = {"max,sve=off": "aarch64-bf16", "max,sve256=on": "aarch64-sve256"}

pytestmark = [
    pytest.mark.skipif(emulated.AARCH64_CXX is None, reason="there is no aarch64-linux-gnu-g++"),
    pytest.mark.skipif(emulated.AARCH64 is None, reason="there is no qemu-aarch64"),
]


class Net(nn.Module):
    """Convolutions, attention over their pixels, a product of activations, a recurrent layer and linears."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = nn.Conv2d(3, 20, 3, 2, 1), nn.Conv2d(20, 48, 3, 1, 1)
        self.qkv, self.out = nn.Linear(48, 3 * 48), nn.Linear(48, 37)
        self.recurrent = nn.LSTM(37, 24)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.deep(torch.relu(self.stem(x.bfloat16()))).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(2, (3, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, 2))
        x = torch.relu(self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        x = x @ (x.transpose(1, 2) @ x) / 64
        return self.head(self.recurrent(x.transpose(0, 1))[0]).float()


@pytest.mark.parametrize(("cpu", "target"), TARGETS.items())
def test_models_in_bf16_match_eager(cpu: str, target: str, cache_dir: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Net().bfloat16().eval(), torch.randn(2, 3, 13, 14)
    path = tmp_path / "model.aotpack"
    build_archive(aot_export(model, (x,)), path, targets=[target], options=BuildOptions(cache_dir=cache_dir))
    done = emulated.aarch64(cpu).run(path, tmp_path, x.numpy())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == target
    with torch.no_grad():
        expected = model(x)
    found = torch.from_numpy(np.fromfile(tmp_path / "out0", np.float32)).reshape(expected.shape)
    assert_close(found, expected, 3e-2)
    code = told_of_module(path, target, tmp_path, "aarch64-linux-gnu-objdump", "-d")
    assert len(re.findall(r"\tbfmmla\t", code)) > 100
    assert len(re.findall(r"\tbfdot\t", code)) > 20
