"""The Triton kernels of products of groups of rows."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def grouped_kernel(
    x,
    w,
    ends,
    out,
    ROWS,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_wg,
    stride_wk,
    stride_wn,
    stride_e,
    GROUPS: tl.constexpr,
    DOUBLE: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """out[m, n] = sum_k x[m, k] * w[g, k, n], where ends[g - 1] <= m < ends[g]; `out` is contiguous.

    Rows that belong to no group are 0. A block computes one tile of a group. It finds its group from the ends, so that
    the host need not know them: there are cdiv(ROWS, BLOCK_M) + GROUPS blocks for each BLOCK_N columns, the most that
    groups can need, and those that are left over do nothing. BLOCK_G, a power of two, is more than GROUPS. Ends that
    decrease, or beyond the rows, are an error.
    """
    tile = tl.program_id(0)
    # The rows that are left over are one more group.
    groups = tl.arange(0, BLOCK_G)
    begin = tl.load(ends + (groups - 1) * stride_e, mask=(groups > 0) & (groups <= GROUPS), other=0).to(tl.int64)
    end = tl.load(ends + groups * stride_e, mask=groups < GROUPS, other=0).to(tl.int64)
    begin = tl.where(groups > GROUPS, ROWS, begin)
    end = tl.where(groups >= GROUPS, ROWS, end)
    tl.device_assert((begin >= 0) & (begin <= end) & (end <= ROWS), "an end of a grouped product is out of bounds")
    begin = tl.minimum(tl.maximum(begin, 0), ROWS)
    end = tl.minimum(end, ROWS)
    tiles = (tl.maximum(end - begin, 0) + BLOCK_M - 1) // BLOCK_M
    through = tl.cumsum(tiles, 0)
    group = tl.sum((through <= tile).to(tl.int32), 0)
    if group <= GROUPS:
        is_group = groups == group
        first = tl.sum(tl.where(is_group, begin, 0), 0)
        last = tl.sum(tl.where(is_group, end, 0), 0)
        before = tl.sum(tl.where(is_group, through - tiles, 0), 0)
        offsets_m = first + (tile - before) * BLOCK_M + tl.arange(0, BLOCK_M)
        offsets_n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        offsets_k = tl.arange(0, BLOCK_K).to(tl.int64)
        in_rows = offsets_m[:, None] < last
        # Columns beyond the end read those at the beginning and are not stored.
        x_tile = x + offsets_m[:, None] * stride_xm + offsets_k[None, :] * stride_xk
        w_tile = (
            w + group.to(tl.int64) * stride_wg + offsets_k[:, None] * stride_wk + (offsets_n % N)[None, :] * stride_wn
        )
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if DOUBLE else tl.float32)
        length = tl.where(group < GROUPS, K, 0)
        for k in range(0, length, BLOCK_K):
            if EVEN_K:
                rows = tl.load(x_tile, mask=in_rows, other=0.0)
                columns = tl.load(w_tile)
            else:
                rows = tl.load(x_tile, mask=in_rows & (offsets_k[None, :] < K - k), other=0.0)
                columns = tl.load(w_tile, mask=offsets_k[:, None] < K - k, other=0.0)
            total = tl.dot(rows, columns, total, input_precision=PRECISION, out_dtype=total.dtype)
            x_tile += BLOCK_K * stride_xk
            w_tile += BLOCK_K * stride_wk
        place = out + offsets_m[:, None] * N + offsets_n[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=in_rows & (offsets_n[None, :] < N))


@triton.jit
def grouped_outer_kernel(
    a,
    b,
    ends,
    out,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_e,
    DOUBLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """out[g, m, n] = the sum of a[m, k] * b[k, n] over ends[g - 1] <= k < ends[g]; `out` is contiguous.

    A block computes one tile of one group. Ends that decrease, or beyond K, are an error.
    """
    tile = tl.program_id(0)
    group = tl.program_id(1).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offsets_m = (tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offsets_n = (tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    first = tl.load(ends + (group - 1) * stride_e, mask=group > 0, other=0).to(tl.int64)
    last = tl.load(ends + group * stride_e).to(tl.int64)
    tl.device_assert((first >= 0) & (first <= last) & (last <= K), "an end of a grouped product is out of bounds")
    first = tl.maximum(first, 0)
    # Of 32 bits: interpreters and compilers disagree on ranges of 64 bits.
    length = tl.maximum(tl.minimum(last, K) - first, 0).to(tl.int32)
    offsets_k = tl.arange(0, BLOCK_K)
    places = first + offsets_k
    # Rows and columns beyond the end read those at the beginning and are not stored.
    a_tile = a + (offsets_m % M)[:, None] * stride_am + places[None, :] * stride_ak
    b_tile = b + places[:, None] * stride_bk + (offsets_n % N)[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if DOUBLE else tl.float32)
    for k in range(0, length, BLOCK_K):
        x = tl.load(a_tile, mask=offsets_k[None, :] < length - k, other=0.0)
        y = tl.load(b_tile, mask=offsets_k[:, None] < length - k, other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=total.dtype)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    place = out + (group * M + offsets_m[:, None]) * N + offsets_n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(offsets_m[:, None] < M) & (offsets_n[None, :] < N))
