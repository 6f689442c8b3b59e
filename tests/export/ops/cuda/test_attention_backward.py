"""The kernels of attention's gradients against torch, and the rule for their tiles."""

from __future__ import annotations

import pytest
import torch

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernels_compute_gradients(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_attention_backward")


@pytest.mark.parametrize(
    ("dtype", "tf32"),
    [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False), (torch.float16, False)],
)
@pytest.mark.parametrize("shared", [99 << 10, 163 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, tf32: bool, shared: int) -> None:
    from aotpack.export.ops.cuda.attention_backward_rule import choose_keys, choose_queries

    for dim in (16, 32, 64, 128, 256):
        for choose in (choose_queries, choose_keys):
            tile = choose(dim, dtype, shared_bytes=shared, tf32=tf32)
            assert tile.shared_bytes(dim, dtype.itemsize) <= shared
            assert all(size >= 16 and size & (size - 1) == 0 for size in (tile.own, tile.other))
