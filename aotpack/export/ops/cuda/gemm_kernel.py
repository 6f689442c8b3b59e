"""The Triton kernel of matrix products."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def gemm_kernel(
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
    GROUP_M: tl.constexpr,
):
    """out[z, m, n] = activation(ALPHA * sum_k a[z, m, k] * b[z, k, n] + bias[n]); `out` is contiguous.

    A block computes one tile. Tiles are taken in groups of GROUP_M rows, so that neighbours in time share operands in
    the L2 cache. SMALL: 32 bits hold every offset in a matrix. Sums are of single precision, or double; activations
    have the numbers of `ops.ACTIVATIONS`.
    """
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    offsets_m = (first + within % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_n = (within // rows) * BLOCK_N + tl.arange(0, BLOCK_N)
    offsets_k = tl.arange(0, BLOCK_K)
    # Rows and columns beyond the end read those at the beginning and are not stored.
    wrapped_m = offsets_m % M
    wrapped_n = offsets_n % N
    if not SMALL:
        wrapped_m = wrapped_m.to(tl.int64)
        wrapped_n = wrapped_n.to(tl.int64)
        offsets_k = offsets_k.to(tl.int64)
    a += batch * stride_az
    b += batch * stride_bz
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if DOUBLE else tl.float32)
    for k in range(0, K, BLOCK_K):
        a_tile = a + wrapped_m[:, None] * stride_am + (k + offsets_k)[None, :] * stride_ak
        b_tile = b + (k + offsets_k)[:, None] * stride_bk + wrapped_n[None, :] * stride_bn
        if EVEN_K:
            x = tl.load(a_tile)
            y = tl.load(b_tile)
        else:
            x = tl.load(a_tile, mask=offsets_k[None, :] < K - k, other=0.0)
            y = tl.load(b_tile, mask=offsets_k[:, None] < K - k, other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee", out_dtype=total.dtype)
    if ALPHA != 1.0:
        total = total * ALPHA
    if HAS_BIAS:
        total += tl.load(bias + wrapped_n)[None, :].to(total.dtype)
    if ACTIVATION == 1:
        # Keeps nan.
        total = tl.where(total < 0, 0.0, total)
    elif ACTIVATION == 2:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == 3:
        inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)
        # tanh(u) = 2 sigmoid(2u) - 1
        total = total * tl.sigmoid(2.0 * inner)
    elif ACTIVATION == 4:
        total = total * tl.sigmoid(total)
    elif ACTIVATION == 5:
        total = tl.sigmoid(total)
    elif ACTIVATION == 6:
        total = 2.0 * tl.sigmoid(2.0 * total) - 1.0
    rows_64 = offsets_m.to(tl.int64)
    place = out + (batch * M + rows_64[:, None]) * N + offsets_n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(offsets_m[:, None] < M) & (offsets_n[None, :] < N))
