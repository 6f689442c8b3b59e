"""The Triton kernel of large matrix products, which reads tiles through the GPU's copy engine (TMA)."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.activation_kernel import activate
from aotpack.export.ops.cuda.tile_order_kernel import tile_place

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def gemm_tma_kernel(
    a,
    b,
    bias,
    residual,
    out,
    M,
    N,
    K,
    ALPHA: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """out[m, n] = activation(ALPHA * sum_k a[m, k] * b[k, n] + bias[n] + residual[m, n]); `residual` and `out` are
    contiguous.

    `a` is a descriptor of [M, K] with blocks of BLOCK_M by BLOCK_K, `b` one of [K, N], or of [N, K] if TRANSPOSED. They
    read zeros beyond the ends. Tiles are taken in groups of GROUP_M rows, as in `gemm_kernel`.
    """
    row, column = tile_place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    first_m = row * BLOCK_M
    first_n = column * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = a.load([first_m, k])
        y = b.load([first_n, k]).T if TRANSPOSED else b.load([k, first_n])
        total = tl.dot(x, y, total)
    if ALPHA != 1.0:
        total = total * ALPHA
    offsets_m = first_m + tl.arange(0, BLOCK_M)
    offsets_n = first_n + tl.arange(0, BLOCK_N)
    if HAS_BIAS:
        total += tl.load(bias + offsets_n, mask=offsets_n < N, other=0.0)[None, :].to(tl.float32)
    place = offsets_m.to(tl.int64)[:, None] * N + offsets_n[None, :]
    inside = (offsets_m[:, None] < M) & (offsets_n[None, :] < N)
    if HAS_RESIDUAL:
        total += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    total = activate(total, ACTIVATION, True)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)
