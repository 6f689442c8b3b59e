"""The Triton kernel of matrix products."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.activation_kernel import activate
from aotpack.export.ops.cuda.tile_order_kernel import tile_place

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def gemm_kernel(
    a,
    b,
    bias,
    residual,
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
    HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DOUBLE: tl.constexpr,
    EVEN_K: tl.constexpr,
    SMALL: tl.constexpr,
    FEW_ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """out[z, m, n] = activation(ALPHA * sum_k a[z, m, k] * b[z, k, n] + bias[n] + residual[z, m, n]); `residual` and
    `out` are contiguous.

    A block computes one tile. Tiles are taken in groups of GROUP_M rows, so that neighbours in time share operands in
    the L2 cache. SMALL: 32 bits hold every offset in a matrix. FEW_ROWS: rows of tiles beyond the end are not read,
    where many of them would read one place of the L2 cache. Each of SPLITS blocks sums a part of k, and where there are
    several, without bias, residual and activation: `out` is [SPLITS, z, m, n] then. Sums are of single precision, or
    double; activations have the numbers of `ops.ACTIVATIONS`.
    """
    row, column = tile_place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    batch = tl.program_id(1).to(tl.int64)
    offsets_m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_n = column * BLOCK_N + tl.arange(0, BLOCK_N)
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
    begin = 0
    end = K
    if SPLITS > 1:
        each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
        begin = tl.program_id(2) * each
        end = tl.minimum(K, begin + each)
    for k in range(begin, end, BLOCK_K):
        a_tile = a + wrapped_m[:, None] * stride_am + (k + offsets_k)[None, :] * stride_ak
        b_tile = b + (k + offsets_k)[:, None] * stride_bk + wrapped_n[None, :] * stride_bn
        if FEW_ROWS and EVEN_K:
            x = tl.load(a_tile, mask=offsets_m[:, None] < M, other=0.0)
        elif FEW_ROWS:
            x = tl.load(a_tile, mask=(offsets_m[:, None] < M) & (offsets_k[None, :] < K - k), other=0.0)
        elif EVEN_K:
            x = tl.load(a_tile)
        else:
            x = tl.load(a_tile, mask=offsets_k[None, :] < K - k, other=0.0)
        y = tl.load(b_tile) if EVEN_K else tl.load(b_tile, mask=offsets_k[:, None] < K - k, other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=total.dtype)
    if ALPHA != 1.0:
        total = total * ALPHA
    if HAS_BIAS:
        total += tl.load(bias + wrapped_n)[None, :].to(total.dtype)
    if SPLITS > 1:
        batch += tl.program_id(2).to(tl.int64) * tl.num_programs(1)
    place = (batch * M + offsets_m.to(tl.int64)[:, None]) * N + offsets_n[None, :]
    inside = (offsets_m[:, None] < M) & (offsets_n[None, :] < N)
    if HAS_RESIDUAL:
        total += tl.load(residual + place, mask=inside, other=0.0).to(total.dtype)
    total = activate(total, ACTIVATION, out.dtype.element_ty.primitive_bitwidth == 16)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
