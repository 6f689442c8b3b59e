"""The kernels of convolutions' gradients against torch, and the rules for their tiles."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernels_compute_gradients_of_weights(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_conv_backward")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    from aotpack.export.ops.cuda.conv_backward_rule import choose

    layers = ((1, 1, 1), (64, 49, 3), (64, 9, 64), (512, 9, 512), (2048, 1, 512), (24, 9, 40))
    for places, (rows, taps, channels) in itertools.product((1, 49, 196, 3136, 100352), layers):
        tile, splits = choose(1, rows, taps, channels, places, dtype, multiprocessors=132, shared_bytes=shared)
        assert tile.shared_bytes(dtype.itemsize) <= shared
        assert all(size >= 16 and size & (size - 1) == 0 for size in (tile.m, tile.n, tile.k))
        assert 1 <= splits <= -(-places // tile.k)


def test_blocks_of_depthwise_gradients_are_small() -> None:
    from aotpack.export.ops.cuda.conv_backward_rule import choose_depthwise

    for count, taps, places in itertools.product((1, 3, 32, 960), (1, 9, 25, 49, 121), (1, 49, 100352)):
        sizes, splits = choose_depthwise(count, taps, places, multiprocessors=132)
        assert all(size & (size - 1) == 0 for size in sizes)
        assert sizes[0] * sizes[1] * sizes[2] <= 4096
        assert 1 <= splits <= max(1, -(-places // sizes[1]))
