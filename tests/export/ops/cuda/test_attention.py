"""The kernel of attention against torch, and the rule for its tiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernel_computes_attention(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_attention")


def test_few_positions(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_decode")


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_of_few_positions_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    for groups, rows, keys in ((1, 1, 512), (8, 4, 4096), (12, 1, 16384), (128, 128, 1024)):
        for dim, value_dim in ((16, 16), (64, 64), (128, 128), (256, 256)):
            tile, splits = _decode(groups, rows, keys, dim=dim, value_dim=value_dim, dtype=dtype, shared_bytes=shared)
            assert tile.shared_bytes(dim, value_dim, dtype.itemsize) <= shared
            assert splits & (splits - 1) == 0
            assert splits <= keys // 64


def test_keys_are_divided_where_multiprocessors_are_idle() -> None:
    assert _decode(8, 4, 4096)[1] == 16
    assert _decode(1, 1, 512)[1] == 8
    assert _decode(128, 4, 4096)[1] == 1
    # What the other kernel does as fast: few keys, no group and no mask, results that may be many.
    assert _decode(8, 4, 256) is None
    assert _decode(128, 1, 4096, reads_less=False) is None
    assert _decode(8, 4, 4096, most_results=1 << 24) is _decode(8, 4, 4096, most_results=None) is None


def _decode(groups: int, rows: int, keys: int, **others: Any) -> Any:
    from aotpack.export.ops.cuda.attention_rule import choose_decode

    how = {
        "dim": 64,
        "value_dim": 64,
        "dtype": torch.bfloat16,
        "reads_less": True,
        "most_results": groups * rows * 64,
        "multiprocessors": 132,
        "shared_bytes": 227 << 10,
    }
    return choose_decode(groups, rows, keys, **{**how, **others})
