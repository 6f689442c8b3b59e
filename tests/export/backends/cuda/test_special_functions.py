"""Special functions on GPUs: operators of the host, with eager's answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch

from aotpack.building import native_sources
from aotpack.errors import UnsupportedOperatorError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.ops.special import BINARY, NAMES, special_function
from tests.export.backends.cuda.conftest import Verify
from tests.gpu.build_archives import build
from tests.gpu.special_functions import special_functions
from tests.support.interpreted_gpu.recording import recorded_kernels

pytestmark = pytest.mark.torch


def test_archives_answer_as_eager_does(tmp_path: Path, verify: Verify) -> None:
    cases = list(special_functions())
    with recorded_kernels(tmp_path / "kernels"):
        assert build(tmp_path, cases, ["cuda-sm_90"]) == 0
    paths = sorted(tmp_path.glob("*.aotpack"))
    assert len(paths) == len(cases)
    verify(tmp_path / "kernels", *paths)


def test_numbers_of_functions_are_those_of_the_kernel() -> None:
    source = (native_sources.module_folder() / "ops" / "special.cpp").read_text()
    cases = {int(number): name for number, name in re.findall(r"case (\d+):  // (\w+)", source)}
    assert cases == dict(enumerate(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_references(name: str) -> None:
    x, y = torch.rand(7, dtype=torch.float64), torch.rand(7, dtype=torch.float64).mul(4).round() + 1
    reference = getattr(torch.special, name, None) or getattr(torch, name)
    found = special_function(x, y, NAMES.index(name))
    if name == "polygamma":
        wanted = torch.stack([torch.polygamma(int(n), value) for n, value in zip(y, x, strict=True)])
    else:
        wanted = reference(x, y) if name in BINARY else reference(x)
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_calls_are_reported_by_their_own_names(tmp_path: Path) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.special.digamma(x)
        return torch.special.zeta(z, y) + torch.polygamma(2, x.double())

    program = aot_export(model, (torch.rand(10), torch.rand(10)))
    report = build_archive(program, tmp_path / "special.aotpack", targets=["cuda-sm_80"])
    steps = {step.operator: step.nbytes for step in report.host_steps["forward"]["default"]}
    # Two operands and a result each: the second operand of digamma is not read.
    assert steps == {"aten.digamma": 120, "aten.special_zeta": 120, "aten.polygamma": 240}
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.digamma"):
        build_archive(
            program,
            tmp_path / "special.aotpack",
            targets=["cuda-sm_80"],
            options=BuildOptions(host_steps=False),
        )
