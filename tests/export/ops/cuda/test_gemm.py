"""The kernel of matrix products against torch, and the rule for its tiles."""

from __future__ import annotations

import pytest
import torch

from tests.export.ops.cuda.interpreter import interpret

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernel_computes_products() -> None:
    interpret("interpreted_gemm")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    from aotpack.export.ops.cuda.gemm_rule import choose

    for m in (1, 16, 17, 32, 33, 128, 4096):
        for n, k in ((1, 1), (768, 768), (32000, 2048), (768, 3072)):
            tile = choose(1, m, n, k, dtype, multiprocessors=132, shared_bytes=shared)
            assert tile.shared_bytes(dtype.itemsize) <= shared
            assert min(tile.m, tile.n, tile.k) >= 16
            assert all(size & (size - 1) == 0 for size in (tile.m, tile.n, tile.k))
