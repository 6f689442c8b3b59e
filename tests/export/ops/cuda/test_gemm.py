"""The kernel of matrix products against torch, and the rule for its tiles."""

from __future__ import annotations

import pytest
import torch

from tests.export.ops.cuda.interpreter import Interpreter

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


def test_the_kernel_computes_products(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_gemm")


def test_few_rows_and_divided_sums(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_gemv")


def test_large_products_by_the_copy_engine(interpreter: Interpreter) -> None:
    interpreter.run("interpreted_gemm_tma")


def test_the_copy_engine_is_used_where_it_is_faster() -> None:
    """As measured on an H100."""
    from aotpack.export.ops.cuda.gemm_rule import choose_tma

    def tile(m: int, n: int, k: int, shared: int = 227 << 10) -> tuple[int, int] | None:
        found = choose_tma(m, n, k, torch.float16, multiprocessors=132, shared_bytes=shared)
        return None if found is None else (found.m, found.n)

    for m, n, k in ((4096, 768, 768), (4096, 2304, 768), (4096, 768, 3072), (4096, 2048, 2048), (6272, 1024, 256)):
        assert tile(m, n, k) == (128, 128)
    for m, n, k in ((512, 2304, 768), (512, 3072, 768), (1024, 2048, 2048), (6272, 256, 1024)):
        assert tile(m, n, k) == (64, 128)
    # Few blocks, short sums, and narrow matrices.
    for m, n, k in ((512, 768, 768), (100352, 256, 64), (25088, 128, 512), (1500, 1536, 384), (1, 50257, 768)):
        assert tile(m, n, k) is None
    assert tile(4096, 768, 3072, shared=64 << 10) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [99 << 10, 227 << 10])
def test_tiles_fit_shared_memory(dtype: torch.dtype, shared: int) -> None:
    from aotpack.export.ops.cuda.gemm_rule import choose

    gpu = {"multiprocessors": 132, "shared_bytes": shared}
    for m in (1, 16, 17, 32, 33, 128, 4096):
        for n, k in ((1, 1), (768, 768), (32000, 2048), (768, 3072)):
            tile, splits = choose(1, m, n, k, dtype, most_results=m * n, **gpu)
            assert tile.shared_bytes(dtype.itemsize) <= shared
            assert min(tile.m, tile.n, tile.k) >= 16
            assert all(size & (size - 1) == 0 for size in (tile.m, tile.n, tile.k, splits))
            assert splits <= max(1, k // tile.k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_sums_are_divided_where_the_workspace_stays_small(dtype: torch.dtype) -> None:
    from aotpack.export.ops.cuda.gemm_rule import choose

    gpu = {"multiprocessors": 132, "shared_bytes": 227 << 10}

    def splits(m: int, n: int, k: int, most_results: int | None) -> int:
        return choose(1, m, n, k, dtype, most_results=most_results, **gpu)[1]

    for m in (1, 16, 32, 128):
        assert splits(m, 768, 3072, m * 768) > 1
        assert splits(m, 768, 3072, 4096 * 4096) == splits(m, 768, 3072, None) == 1
    assert splits(4096, 4096, 4096, 4096 * 4096) == splits(1, 768, 64, 768) == 1


def test_tiles_keep_the_multiprocessors_busy() -> None:
    """As measured on an H100."""
    from aotpack.export.ops.cuda.gemm_rule import choose

    def tile(m: int, n: int, k: int, *, residual: bool = False) -> tuple[int, int]:
        gpu = {"multiprocessors": 132, "shared_bytes": 227 << 10}
        found, splits = choose(1, m, n, k, torch.float16, most_results=m * n, residual=residual, **gpu)
        assert splits == 1
        return found.m, found.n

    for m, n, k in ((100352, 256, 64), (25088, 512, 128), (1568, 2048, 512), (4096, 3072, 768)):
        assert tile(m, n, k) == (128, 128)
        assert tile(m, n, k, residual=True) == (64, 128)
    for m, n, k in ((25088, 128, 512), (6272, 256, 1024), (4096, 768, 768)):
        assert tile(m, n, k) == (64, 128)
    for m, n, k in ((100352, 64, 256), (1568, 512, 2048)):
        assert tile(m, n, k) == (64, 64)


def test_few_rows_have_a_kernel_of_their_own() -> None:
    from aotpack.export.ops.cuda.gemm_rule import choose_vector

    half, full, double = torch.bfloat16, torch.float32, torch.float64
    for m, n, dtype in ((1, 32000, half), (2, 32000, half), (4, 768, half), (1, 768, full), (8, 32000, full)):
        tile = choose_vector(m, n, 2048, dtype, most_rows=m)
        assert tile is not None
        assert tile.m <= m
    for m, n, dtype in ((4, 32000, half), (5, 768, half), (17, 768, full), (16, 32000, full), (1, 768, double)):
        assert choose_vector(m, n, 2048, dtype, most_rows=m) is None
    # Dynamic rows, of which there may be many.
    assert choose_vector(1, 768, 768, half, most_rows=4) is not None
    assert choose_vector(1, 768, 768, half, most_rows=512) is choose_vector(1, 768, 768, half, most_rows=None) is None
