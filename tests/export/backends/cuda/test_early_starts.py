"""Kernels that wait for those before them: all of a module or none, by target."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch
from torch import nn

from aotpack.export import aot_export, build_archive
from aotpack.export.backends.cuda import backend
from aotpack.export.torch_compat.triton.early_starts import WAIT, with_wait
from tests.export.backends.cuda.cubins import read_cubin

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("target", "waits"), [("cuda-sm_90", True), ("cuda-sm_120", True), ("cuda-sm_86", False)])
def test_all_kernels_wait_where_the_gpu_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, waits: bool
) -> None:
    modules = []
    lower = backend.lower
    monkeypatch.setattr(backend, "lower", lambda *args, **how: modules.append(lower(*args, **how)) or modules[-1])
    program = aot_export(nn.Sequential(nn.Linear(64, 48), nn.LayerNorm(48)).eval(), (torch.randn(40, 64),))
    build_archive(program, tmp_path / "model.aotpack", targets=[target])
    (module,) = modules
    assert len(module.device_code) >= 2
    for kernel in module.device_code:
        assert kernel.waits == waits == (WAIT in kernel.ptx)
        # Before anything else that the kernel does, which the assembler reorders.
        body = kernel.ptx[kernel.ptx.index("{", kernel.ptx.index(".entry")) :]
        assert not waits or body.split()[1] == "griddepcontrol.wait;"
        assert read_cubin(kernel.cubin).waits == waits
    assert module.wrapper.count("AOTPACK_LAUNCH_WAITS") == (len(module.device_code) if waits else 0)


def test_text_without_a_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="0 kernels"):
        with_wait(".version 8.4\n.target sm_90a\n")
