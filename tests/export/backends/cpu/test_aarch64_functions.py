"""Functions of torch's vectors in archives for 64-bit ARM: what Sleef would compute comes from csrc/module/vecmath, not
from libm for each lane.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import BuildOptions, aot_export, build_archive
from tests.export.backends.cpu.test_aarch64_sve256 import SVE256, called, output
from tests.support import emulated
from tests.support.building import told_of_module

pytestmark = [
    pytest.mark.skipif(emulated.AARCH64_CXX is None, reason="there is no aarch64-linux-gnu-g++"),
    pytest.mark.skipif(emulated.AARCH64 is None, reason="there is no qemu-aarch64"),
]


class Functions(nn.Module):
    """Functions of which torch's vectors call Sleef's, or have their own."""

    NAMES = ("tanh", "erf", "expm1", "exp", "exp2", "log1p", "sin", "cos", "tan", "atan", "asinh", "sinh", "cosh")
    NAMES += ("sigmoid", "rsqrt", "lgamma", "round", "floor", "ceil", "trunc", "frac", "sign", "abs", "relu")

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        each = [getattr(torch, name)(x) for name in self.NAMES]
        each += [getattr(torch, name)(z) for name in ("tanh", "exp", "log1p", "sin", "sqrt")]
        each += [torch.pow(x.abs(), y), torch.atan2(x, y), torch.fmod(x, y), torch.remainder(x, y), x // y]
        each += [torch.maximum(x, y), torch.where(x > y, x, y * 2), torch.clamp(x, -0.5, 0.5), torch.copysign(x, y)]
        whole = torch.nan_to_num(x * 100).to(torch.int64)  # of NaN it is another number on each processor
        each += [(whole // 7).double(), (whole % 7).float(), (whole.int() & 12).float(), whole.to(torch.uint8).float()]
        each += [x.bfloat16(), x.half(), (x > 0).float()]
        return [*each, x.sum(), y.amax(), x.view(7, -1).var(1), x.view(7, -1).argmin(1).float(), x.cumsum(0)]


PROCESSORS = {"aarch64": "cortex-a57", "aarch64-sve256": SVE256}


@pytest.mark.parametrize("target", PROCESSORS)
def test_functions_match_eager(cache_dir: Path, tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    # Of every size below 1 and around it; a tail that fills no vector.
    x = torch.randn(1001) * 10.0 ** torch.empty(1001).uniform_(-20, 0.8)
    x[:6] = torch.tensor([0.0, -0.0, 0.5, -0.49999997, torch.nan, 5e-8])
    given = x, torch.randn(1001) * 3, x.double().abs()
    path = tmp_path / "model.aotpack"
    build_archive(aot_export(Functions(), given), path, targets=[target], options=BuildOptions(cache_dir=cache_dir))
    assert called(PROCESSORS[target], path, tmp_path, *given) == target
    for number, expected in enumerate(Functions()(*given)):
        if expected.dtype in (torch.bfloat16, torch.float16):
            found = output(tmp_path, expected.view(torch.int16), number).view(expected.dtype)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            continue
        found = output(tmp_path, expected, number)
        # Relative to each element: what is small is as accurate as what is large.
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-35, equal_nan=True, msg=f"output {number}")


class Activations(nn.Module):
    NAMES = ("tanh", "erf", "expm1", "exp", "exp2", "log", "log1p", "sin", "cos", "tan", "atan", "asinh", "sigmoid")

    def forward(self, x: Tensor) -> list[Tensor]:
        return [getattr(torch, name)(x) for name in self.NAMES]


@pytest.mark.parametrize("target", PROCESSORS)
def test_no_function_is_libms(cache_dir: Path, tmp_path: Path, target: str) -> None:
    path = tmp_path / "model.aotpack"
    program = aot_export(Activations(), (torch.rand(1024),))
    build_archive(program, path, targets=[target], options=BuildOptions(cache_dir=cache_dir))
    symbols = told_of_module(path, target, tmp_path, "aarch64-linux-gnu-nm", "-D", "--undefined-only")
    # Beyond the reduction's reach sines are libm's.
    names = "|".join(name for name in ("sigmoid", *Activations.NAMES) if name not in ("sin", "cos", "tan"))
    assert not re.findall(rf"\b(?:{names})f?@?", symbols)
