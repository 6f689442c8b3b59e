"""The kernel of recurrent layers against torch, and the rule for its tiles."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import torch

from aotpack.export.ops.cuda import recurrent
from aotpack.export.ops.cuda.gpu import float32_products
from tests.export.ops.cuda.interpreter import Interpreter

pytestmark = pytest.mark.torch


def test_the_kernel_computes_steps(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_recurrent")


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 64])
@pytest.mark.parametrize("hidden", [1, 40, 256, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tiles_fit_registers(rows: int, hidden: int, dtype: torch.dtype) -> None:
    tile = recurrent.choose(rows, hidden, dtype)
    sizes = (tile.m, tile.n, tile.k)
    assert all(size & (size - 1) == 0 for size in sizes)
    assert tile.matrix == (dtype == torch.float16 and rows > 4)
    if tile.matrix:
        assert min(sizes) >= 16
    else:
        assert tile.m >= min(rows, 8)
        # Of four gates, for each thread.
        assert tile.m * tile.n * tile.k * 4 <= 128 * 32 * tile.warps


def test_many_rows_of_single_precision_are_products() -> None:
    assert recurrent.supports(128, torch.bfloat16)
    assert recurrent.supports(32, torch.float32)
    assert not recurrent.supports(33, torch.float32)
    with float32_products("tf32"):
        assert recurrent.supports(33, torch.float32)
        assert recurrent.choose(33, 64, torch.float32).matrix
