"""The Triton kernel of matrix products with few rows."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.activation_kernel import activate

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def gemv_kernel(
    a,
    b,
    bias,
    out,
    M,
    N,
    K,
    stride_az,
    stride_am,
    stride_ak,
    stride_bz,
    stride_bk,
    stride_bn,
    ALPHA: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DOUBLE: tl.constexpr,
    EVEN_K: tl.constexpr,
    SMALL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out[z, m, n] = activation(ALPHA * sum_k a[z, m, k] * b[z, k, n] + bias[n]); `out` is contiguous.

    A block computes BLOCK_M rows of BLOCK_N columns. Its threads share the elements of a column and sum them up at the
    end: fast where these are neighbours in memory. Parameters are those of `gemm_kernel`.
    """
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    # One row of operands for each result.
    results = tl.arange(0, BLOCK_M * BLOCK_N)
    first = tile // tiles_n * BLOCK_M
    offsets_m = first + results // BLOCK_N
    offsets_n = tile % tiles_n * BLOCK_N + results % BLOCK_N
    offsets_k = tl.arange(0, BLOCK_K)
    # Rows and columns beyond the end read those at the beginning and are not stored.
    wrapped_m = offsets_m % M
    wrapped_n = offsets_n % N
    if not SMALL:
        first = first.to(tl.int64)
        wrapped_m = wrapped_m.to(tl.int64)
        wrapped_n = wrapped_n.to(tl.int64)
        offsets_k = offsets_k.to(tl.int64)
    a += batch * stride_az
    b += batch * stride_bz
    precise: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    total = tl.zeros((BLOCK_M * BLOCK_N, BLOCK_K), dtype=precise)
    for k in range(0, K, BLOCK_K):
        if BLOCK_M == 1:
            # The same for all columns.
            a_tile = a + first * stride_am + (k + offsets_k)[None, :] * stride_ak
        else:
            a_tile = a + wrapped_m[:, None] * stride_am + (k + offsets_k)[None, :] * stride_ak
        b_tile = b + wrapped_n[:, None] * stride_bn + (k + offsets_k)[None, :] * stride_bk
        if EVEN_K:
            x = tl.load(a_tile)
            # Weights are read once.
            y = tl.load(b_tile, eviction_policy="evict_first")
        else:
            x = tl.load(a_tile, mask=offsets_k[None, :] < K - k, other=0.0)
            y = tl.load(b_tile, mask=offsets_k[None, :] < K - k, other=0.0, eviction_policy="evict_first")
        total += x.to(precise) * y.to(precise)
    result = tl.sum(total, 1)
    if ALPHA != 1.0:
        result = result * ALPHA
    if HAS_BIAS:
        result += tl.load(bias + wrapped_n).to(precise)
    result = activate(result, ACTIVATION, out.dtype.element_ty.primitive_bitwidth == 16)
    place = out + (batch * M + offsets_m) * N + offsets_n
    tl.store(place, result.to(out.dtype.element_ty), mask=(offsets_m < M) & (offsets_n < N))
