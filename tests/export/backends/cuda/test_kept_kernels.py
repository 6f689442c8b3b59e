"""Compiled kernels are found again in the build cache, and made again where it is damaged or Triton was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import torch

from aotpack.building.cache import BuildCache
from aotpack.export import aot_export
from aotpack.export.backends.cuda.lower import lower
from aotpack.export.torch_compat.triton import kept_kernels
from aotpack.export.torch_compat.triton.kept_kernels import kernels_kept

pytestmark = pytest.mark.torch


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that Triton compiles."""
    from triton.backends.nvidia.compiler import CUDABackend

    texts: list[str] = []
    original = CUDABackend.make_ptx

    def noting(self: Any, *args: Any, **options: Any) -> str:
        texts.append(original(self, *args, **options))
        return texts[-1]

    monkeypatch.setattr(CUDABackend, "make_ptx", noting)
    return texts


def test_kernels_are_compiled_once(compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = aot_export(lambda x: (x.softmax(-1), x.cumsum(0)), (torch.randn(8, 48),))

    def kernels(target: str = "cuda-sm_90") -> Any:
        with kernels_kept(BuildCache(tmp_path)):
            return lower(program, target).device_code

    first = kernels()
    count = len(compiled)
    assert count == len(first) > 0
    assert kernels() == first
    assert len(compiled) == count
    # Without a cache, as before.
    assert lower(program, "cuda-sm_90").device_code == first
    assert len(compiled) == 2 * count

    for path in tmp_path.rglob("*.triton.json"):
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert kernels() == first
    assert len(compiled) == 3 * count
    assert kernels() == first
    assert len(compiled) == 3 * count

    assert kernels("cuda-sm_80") != first
    assert len(compiled) == 4 * count
    monkeypatch.setattr(kept_kernels, "_changes", lambda: "another compiler of kernels")
    assert kernels() == first
    assert len(compiled) == 5 * count
