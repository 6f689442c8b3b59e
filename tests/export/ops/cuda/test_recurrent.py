"""The kernel of recurrent layers against torch, and the rule for its tiles."""

from __future__ import annotations

import pytest

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernel_computes_steps(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_recurrent")


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 64])
@pytest.mark.parametrize("hidden", [1, 40, 256, 2048])
def test_tiles_fit_registers(rows: int, hidden: int) -> None:
    from aotpack.export.ops.cuda.recurrent import choose

    tile = choose(rows, hidden, multiprocessors=132)
    sizes = (tile.m, tile.n, tile.k)
    assert all(size & (size - 1) == 0 for size in sizes)
    if tile.matrix:
        assert min(sizes) >= 16
    else:
        assert tile.m >= rows
        # Of four gates, and 32 in each thread.
        assert tile.m * tile.n * tile.k * 4 <= 64 * 32 * tile.warps
