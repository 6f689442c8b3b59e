"""The kernel of attention against torch, and the rule for its tiles."""

from __future__ import annotations

import pytest
import torch

from tests.export.ops.cuda.interpreter import interpret

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernel_computes_attention() -> None:
    interpret("interpreted_attention")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    from aotpack.export.ops.cuda.attention_rule import choose

    for heads, length in ((1, 1), (12, 128), (12, 4096), (4096, 17)):
        for dim, value_dim in ((16, 16), (64, 64), (128, 128), (256, 256), (256, 16)):
            tile = choose(heads, length, length, dim, value_dim, dtype, multiprocessors=132, shared_bytes=shared)
            assert tile.shared_bytes(dim, value_dim, dtype.itemsize) <= shared
            assert min(tile.m, tile.n) >= 16
            assert all(size & (size - 1) == 0 for size in (tile.m, tile.n))
