"""Triton compiles for the GPU of each target: what it remembers of one is not what another one has."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from aotpack.export.torch_compat.triton.driver import triton_driver
from aotpack.targets import BY_NAME

pytestmark = pytest.mark.torch


def test_limits_are_those_of_each_target() -> None:
    from triton.compiler.compiler import max_shared_mem

    found = {}
    for name in ("cuda-sm_86", "cuda-sm_90", "cuda-sm_80"):
        gpu = BY_NAME[name].gpu
        assert gpu is not None
        with triton_driver(gpu):
            found[name] = max_shared_mem(0)
        assert found[name] == gpu.shared_per_block
    assert len(set(found.values())) == len(found)
