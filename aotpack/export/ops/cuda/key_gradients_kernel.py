"""The Triton kernel of the gradients of an attention's keys and values."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.query_gradient_kernel import weights_again

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def _add_queries(
    keys,
    values,
    dk,
    dv,
    q,
    dy,
    masks,
    statistics,
    delta,
    offsets_n,
    is_key,
    begin,
    end,
    diagonal,
    last,
    LENGTH,
    stride_qm,
    stride_gm,
    stride_mm,
    SCALE: tl.constexpr,
    DIM: tl.constexpr,
    MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds what blocks of positions contribute to the gradients of keys and values.

    WHOLE: blocks begin to end, whose positions all exist and read these keys if the mask lets them. Otherwise `last` is
    read in place of blocks from `diagonal` on.
    """
    offsets_m = tl.arange(0, BLOCK_M)
    in_dim = tl.arange(0, BLOCK_D) < DIM
    for step in range(begin, end):
        m = step * BLOCK_M
        if not WHOLE:
            m = tl.where(step < diagonal, m, last * BLOCK_M)
        # 32 bits need not hold a place.
        start = tl.cast(m, tl.int64)
        is_row = offsets_m < LENGTH - m
        queries = q + start * stride_qm
        gradients = dy + start * stride_gm
        if WHOLE and BLOCK_D == DIM:
            x = tl.load(queries)
            g = tl.load(gradients)
        elif WHOLE:
            x = tl.load(queries, mask=in_dim[:, None], other=0.0)
            g = tl.load(gradients, mask=in_dim[None, :], other=0.0)
        else:
            x = tl.load(queries, mask=is_row[None, :] & in_dim[:, None], other=0.0)
            g = tl.load(gradients, mask=is_row[:, None] & in_dim[None, :], other=0.0)
        largest = tl.load(statistics + m + offsets_m, mask=is_row, other=0.0)
        logarithm = tl.load(statistics + LENGTH + m + offsets_m, mask=is_row, other=float("inf"))
        sums = tl.load(delta + m + offsets_m, mask=is_row, other=0.0)
        product = tl.dot(keys, x, input_precision=PRECISION)
        p = weights_again(
            product, masks + start * stride_mm, is_row[None, :] & is_key[:, None], largest[None, :],
            logarithm[None, :], SCALE, MASK,
        )  # fmt: skip
        if not WHOLE:
            p = tl.where(is_row[None, :], p, 0.0)
            if CAUSAL:
                p = tl.where(m + offsets_m[None, :] >= offsets_n[:, None], p, 0.0)
        dv = tl.dot(p.to(g.dtype), g, dv, input_precision=PRECISION)
        dp = tl.dot(values, tl.trans(g), input_precision=PRECISION)
        ds = p * (dp - sums[None, :])
        dk = tl.dot(ds.to(x.dtype), tl.trans(x), dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def key_gradients_kernel(
    dy,
    q,
    k,
    v,
    mask,
    statistics,
    delta,
    out,
    value_gradient,
    LENGTH,
    KEYS,
    KEY_HEADS,
    stride_gb,
    stride_gh,
    stride_gm,
    stride_gd,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_vd,
    stride_mb,
    stride_mh,
    stride_mm,
    stride_mn,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """The gradients of an attention's keys, SCALE * dS.T @ q, and values, P.T @ dy, summed over the heads of a group.

    P and dS are those of `query_gradient_kernel`, which has written `delta`. `out` and `value_gradient` are [batch,
    KEYS, KEY_HEADS, DIM], contiguous. A block computes BLOCK_N keys of one head, and reads BLOCK_M positions at a time,
    those of one head of the group after another: sums are the same in every call.
    """
    block = tl.program_id(0)
    blocks = tl.cdiv(KEYS, BLOCK_N)
    # The first blocks of a causal attention are the longest: first.
    position = block % blocks
    batch = (block // blocks // KEY_HEADS).to(tl.int64)
    key_head = (block // blocks % KEY_HEADS).to(tl.int64)
    offsets_n = position * BLOCK_N + tl.arange(0, BLOCK_N)
    offsets_m = tl.arange(0, BLOCK_M).to(tl.int64)
    offsets_d = tl.arange(0, BLOCK_D).to(tl.int64)
    is_key = offsets_n < KEYS
    columns = tl.where(is_key, offsets_n, 0).to(tl.int64)
    in_dim = offsets_d < DIM

    keys = tl.load(
        k + batch * stride_kb + key_head * stride_kh + columns[:, None] * stride_kn + offsets_d[None, :] * stride_kd,
        mask=in_dim[None, :],
        other=0.0,
    )
    values = tl.load(
        v + batch * stride_vb + key_head * stride_vh + columns[:, None] * stride_vn + offsets_d[None, :] * stride_vd,
        mask=in_dim[None, :],
        other=0.0,
    )
    # Blocks of positions: some of their positions read no key of this block, all read every key, and the last one may
    # have fewer positions.
    full = LENGTH // BLOCK_M
    first = 0
    diagonal = 0
    if CAUSAL:
        steps = tl.cdiv(LENGTH, BLOCK_M)
        first = tl.minimum(position * BLOCK_N // BLOCK_M, steps)
        diagonal = tl.minimum(tl.cdiv(position * BLOCK_N + BLOCK_N - 1, BLOCK_M), steps)
    end = diagonal + tl.cdiv(LENGTH, BLOCK_M) - tl.maximum(full, diagonal)
    dk = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    for member in range(GROUP):
        head = key_head * GROUP + member
        row = batch * KEY_HEADS * GROUP + head
        queries = (
            q + batch * stride_qb + head * stride_qh + offsets_m[None, :] * stride_qm + offsets_d[:, None] * stride_qd
        )
        gradients = (
            dy + batch * stride_gb + head * stride_gh + offsets_m[:, None] * stride_gm + offsets_d[None, :] * stride_gd
        )
        masks = (
            mask + batch * stride_mb + head * stride_mh + offsets_m[None, :] * stride_mm + columns[:, None] * stride_mn
        )
        dk, dv = _add_queries(
            keys, values, dk, dv, queries, gradients, masks, statistics + row * 2 * LENGTH, delta + row * LENGTH,
            offsets_n, is_key, first, end, diagonal, full, LENGTH, stride_qm, stride_gm, stride_mm,
            SCALE, DIM, MASK, CAUSAL, False, BLOCK_M, BLOCK_D, PRECISION,
        )  # fmt: skip
        dk, dv = _add_queries(
            keys, values, dk, dv, queries, gradients, masks, statistics + row * 2 * LENGTH, delta + row * LENGTH,
            offsets_n, is_key, diagonal, full, diagonal, full, LENGTH, stride_qm, stride_gm, stride_mm,
            SCALE, DIM, MASK, CAUSAL, True, BLOCK_M, BLOCK_D, PRECISION,
        )  # fmt: skip
    place = ((batch * KEYS + columns[:, None]) * KEY_HEADS + key_head) * DIM + offsets_d[None, :]
    stored = is_key[:, None] & in_dim[None, :]
    tl.store(out + place, (dk * SCALE).to(out.dtype.element_ty), mask=stored)
    tl.store(value_gradient + place, dv.to(value_gradient.dtype.element_ty), mask=stored)
