"""The kernels of convolutions against torch, and the rule for their tiles."""

from __future__ import annotations

import pytest
import torch

from tests.export.ops.cuda.interpreter import interpret

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernels_compute_convolutions() -> None:
    interpret("interpreted_conv")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    from aotpack.export.ops.cuda.conv_rule import choose

    for places in (1, 49, 196, 3136, 100352):
        for channels_out, taps, channels in ((1, 1, 1), (64, 49, 3), (64, 9, 64), (512, 9, 512), (2048, 1, 512)):
            tile, splits = choose(
                1, places, channels_out, taps, channels, dtype, multiprocessors=132, shared_bytes=shared
            )
            assert tile.shared_bytes(dtype.itemsize) <= shared
            assert min(tile.m, tile.n, tile.k) >= 16
            assert all(size & (size - 1) == 0 for size in (tile.m, tile.n, tile.k))
            assert 1 <= splits <= max(1, -(-taps * channels // tile.k))
