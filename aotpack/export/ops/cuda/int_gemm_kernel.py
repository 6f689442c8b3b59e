"""The Triton kernel of products of int8 matrices."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.tile_order_kernel import tile_place

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def int_gemm_kernel(
    a,
    b,
    out,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """out[m, n] = sum_k a[m, k] * b[k, n] in int32; `out` is contiguous.

    A block computes one tile. Tiles are taken in groups of GROUP_M rows, so that neighbours in time share operands in
    the L2 cache.
    """
    row, column = tile_place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offsets_m = (row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offsets_n = (column * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offsets_k = tl.arange(0, BLOCK_K).to(tl.int64)
    # Rows and columns beyond the end read those at the beginning and are not stored.
    a_tile = a + (offsets_m % M)[:, None] * stride_am + offsets_k[None, :] * stride_ak
    b_tile = b + offsets_k[:, None] * stride_bk + (offsets_n % N)[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(a_tile)
            y = tl.load(b_tile)
        else:
            x = tl.load(a_tile, mask=offsets_k[None, :] < K - k, other=0)
            y = tl.load(b_tile, mask=offsets_k[:, None] < K - k, other=0)
        total = tl.dot(x, y, total, out_dtype=tl.int32)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (offsets_m[:, None] < M) & (offsets_n[None, :] < N)
    tl.store(out + offsets_m[:, None] * N + offsets_n[None, :], total, mask=inside)
