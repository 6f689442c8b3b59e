"""The Triton kernels of linear layers with int8 weights."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.activation_kernel import activate
from aotpack.export.ops.cuda.tile_order_kernel import tile_place

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def int8_weight_gemm_kernel(
    x,
    w,
    scale,
    bias,
    out,
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_wn,
    stride_wk,
    stride_s,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """out[m, n] = activation(scale[n] * sum_k x[m, k] * w[n, k] + bias[n]); w is int8, `bias` and `out` contiguous.

    A block computes one tile. Weights become numbers of the dtype of `x` in registers. Tiles are taken in groups of
    GROUP_M rows, so that neighbours in time share operands in the L2 cache.
    """
    row, column = tile_place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offsets_m = (row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offsets_n = (column * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offsets_k = tl.arange(0, BLOCK_K).to(tl.int64)
    in_rows = offsets_m[:, None] < M
    # Columns beyond the end read those at the beginning and are not stored.
    wrapped_n = offsets_n % N
    x_tile = x + offsets_m[:, None] * stride_xm + offsets_k[None, :] * stride_xk
    w_tile = w + offsets_k[:, None] * stride_wk + wrapped_n[None, :] * stride_wn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            left = tl.load(x_tile, mask=in_rows, other=0.0)
            right = tl.load(w_tile)
        else:
            left = tl.load(x_tile, mask=in_rows & (offsets_k[None, :] < K - k), other=0.0)
            right = tl.load(w_tile, mask=offsets_k[:, None] < K - k, other=0)
        total = tl.dot(left, right.to(left.dtype), total, input_precision=PRECISION, out_dtype=tl.float32)
        x_tile += BLOCK_K * stride_xk
        w_tile += BLOCK_K * stride_wk
    if HAS_SCALE:
        total *= tl.load(scale + wrapped_n * stride_s)[None, :].to(tl.float32)
    if HAS_BIAS:
        total += tl.load(bias + wrapped_n)[None, :].to(tl.float32)
    total = activate(total, ACTIVATION, out.dtype.element_ty.primitive_bitwidth == 16)
    place = out + offsets_m[:, None] * N + offsets_n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=in_rows & (offsets_n[None, :] < N))


@triton.jit
def int8_weight_gemv_kernel(
    x,
    w,
    scale,
    bias,
    out,
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_wn,
    stride_wk,
    stride_s,
    HAS_SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """`int8_weight_gemm_kernel` for few rows.

    A block computes BLOCK_M rows of BLOCK_N columns. Its threads share the elements of a column and sum them up at the
    end: fast where these are neighbours in memory.
    """
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    # One row of operands for each result.
    results = tl.arange(0, BLOCK_M * BLOCK_N)
    offsets_m = (tile // tiles_n * BLOCK_M + results // BLOCK_N).to(tl.int64)
    offsets_n = (tile % tiles_n * BLOCK_N + results % BLOCK_N).to(tl.int64)
    offsets_k = tl.arange(0, BLOCK_K).to(tl.int64)
    # Rows and columns beyond the end read those at the beginning and are not stored.
    wrapped_n = offsets_n % N
    x_tile = x + (offsets_m % M)[:, None] * stride_xm + offsets_k[None, :] * stride_xk
    w_tile = w + wrapped_n[:, None] * stride_wn + offsets_k[None, :] * stride_wk
    total = tl.zeros((BLOCK_M * BLOCK_N, BLOCK_K), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            left = tl.load(x_tile)
            # Weights are read once.
            right = tl.load(w_tile, eviction_policy="evict_first")
        else:
            left = tl.load(x_tile, mask=offsets_k[None, :] < K - k, other=0.0)
            right = tl.load(w_tile, mask=offsets_k[None, :] < K - k, other=0, eviction_policy="evict_first")
        total += left.to(tl.float32) * right.to(tl.float32)
        x_tile += BLOCK_K * stride_xk
        w_tile += BLOCK_K * stride_wk
    result = tl.sum(total, 1)
    if HAS_SCALE:
        result *= tl.load(scale + wrapped_n * stride_s).to(tl.float32)
    if HAS_BIAS:
        result += tl.load(bias + wrapped_n).to(tl.float32)
    result = activate(result, ACTIVATION, out.dtype.element_ty.primitive_bitwidth == 16)
    place = out + offsets_m * N + offsets_n
    tl.store(place, result.to(out.dtype.element_ty), mask=(offsets_m < M) & (offsets_n < N))
