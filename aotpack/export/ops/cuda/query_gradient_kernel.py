"""The Triton kernel of the gradient of an attention's queries."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def weights_again(product, masks, is_read, largest, logarithm, SCALE: tl.constexpr, MASK: tl.constexpr):
    """softmax(SCALE * product + mask) of a tile, from the statistics of `attention_kernel`, which broadcast to it.

    `is_read` says where `masks` may be read.
    """
    log2_e: tl.constexpr = 1.4426950408889634
    if MASK == 2:
        # The lowest number as a mask is all of the score: its difference with the largest one comes first.
        score = product * SCALE + tl.load(masks, mask=is_read, other=0.0).to(tl.float32)
        weights = tl.exp2((score - largest) * log2_e - logarithm)
    else:
        weights = tl.exp2(product * (SCALE * log2_e) - (largest * log2_e + logarithm))
    if MASK == 1:
        weights = tl.where(tl.load(masks, mask=is_read, other=0) != 0, weights, 0.0)
    return weights


@triton.jit
def _add_keys(
    queries,
    gradients,
    largest,
    logarithm,
    delta,
    total,
    keys,
    values,
    masks,
    offsets_m,
    begin,
    end,
    KEYS,
    stride_kn,
    stride_vn,
    stride_mn,
    SCALE: tl.constexpr,
    DIM: tl.constexpr,
    MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds what keys begin to end contribute to the gradient of queries.

    WHOLE: all of these keys exist, in blocks of BLOCK_N, and every position reads them if the mask lets it.
    """
    offsets_n = tl.arange(0, BLOCK_N)
    in_dim = (tl.arange(0, BLOCK_D) < DIM)[:, None]
    for n in range(begin, end, BLOCK_N):
        is_key = (offsets_n < KEYS - n)[None, :]
        if WHOLE and BLOCK_D == DIM:
            x = tl.load(keys)
            y = tl.load(values)
        elif WHOLE:
            x = tl.load(keys, mask=in_dim, other=0.0)
            y = tl.load(values, mask=in_dim, other=0.0)
        else:
            x = tl.load(keys, mask=is_key & in_dim, other=0.0)
            y = tl.load(values, mask=is_key & in_dim, other=0.0)
        product = tl.dot(queries, x, input_precision=PRECISION)
        p = weights_again(product, masks, is_key, largest[:, None], logarithm[:, None], SCALE, MASK)
        if not WHOLE:
            p = tl.where(is_key, p, 0.0)
            if CAUSAL:
                p = tl.where(offsets_m[:, None] >= n + offsets_n[None, :], p, 0.0)
        dp = tl.dot(gradients, y, input_precision=PRECISION)
        ds = p * (dp - delta[:, None])
        total = tl.dot(ds.to(x.dtype), tl.trans(x), total, input_precision=PRECISION)
        keys += BLOCK_N * stride_kn
        values += BLOCK_N * stride_vn
        masks += BLOCK_N * stride_mn
    return total


@triton.jit
def query_gradient_kernel(
    dy,
    q,
    k,
    v,
    mask,
    y,
    statistics,
    out,
    delta,
    LENGTH,
    KEYS,
    HEADS,
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
    stride_yb,
    stride_yh,
    stride_ym,
    stride_yd,
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
    """The gradient of an attention's queries, and what that of its keys needs: the sum of dy * y of each row.

    With P = softmax(SCALE * q @ k.T + mask), dS = P * (dy @ v.T - delta) and delta = rowsum(dy * y), it is SCALE * dS @
    k (Dao et al. 2022, "FlashAttention", appendix B.2). `out` is [batch, LENGTH, HEADS, DIM] and `delta` [batch, HEADS,
    LENGTH] of single precision, both contiguous. `statistics` is that of `attention_kernel`, as are MASK, GROUP and
    CAUSAL. A block computes BLOCK_M positions of one head, and reads the keys BLOCK_N at a time.
    """
    block = tl.program_id(0)
    blocks = tl.cdiv(LENGTH, BLOCK_M)
    # The last blocks of a causal attention are the longest: first.
    position = blocks - 1 - block % blocks
    batch = (block // blocks // HEADS).to(tl.int64)
    head = (block // blocks % HEADS).to(tl.int64)
    offsets_m = position * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offsets_d = tl.arange(0, BLOCK_D).to(tl.int64)
    is_row = offsets_m < LENGTH
    rows = tl.where(is_row, offsets_m, 0).to(tl.int64)
    in_dim = offsets_d < DIM
    row = batch * HEADS + head

    queries = tl.load(
        q + batch * stride_qb + head * stride_qh + rows[:, None] * stride_qm + offsets_d[None, :] * stride_qd,
        mask=in_dim[None, :],
        other=0.0,
    )
    gradients = tl.load(
        dy + batch * stride_gb + head * stride_gh + rows[:, None] * stride_gm + offsets_d[None, :] * stride_gd,
        mask=in_dim[None, :],
        other=0.0,
    )
    results = tl.load(
        y + batch * stride_yb + head * stride_yh + rows[:, None] * stride_ym + offsets_d[None, :] * stride_yd,
        mask=in_dim[None, :],
        other=0.0,
    )
    sums = tl.sum(gradients.to(tl.float32) * results.to(tl.float32), 1)
    tl.store(delta + row * LENGTH + rows, sums, mask=is_row)
    largest = tl.load(statistics + row * 2 * LENGTH + rows)
    logarithm = tl.load(statistics + row * 2 * LENGTH + LENGTH + rows)
    keys = (
        k
        + batch * stride_kb
        + head // GROUP * stride_kh
        + offsets_n[None, :] * stride_kn
        + offsets_d[:, None] * stride_kd
    )
    values = (
        v
        + batch * stride_vb
        + head // GROUP * stride_vh
        + offsets_n[None, :] * stride_vn
        + offsets_d[:, None] * stride_vd
    )
    masks = mask + batch * stride_mb + head * stride_mh + rows[:, None] * stride_mm + offsets_n[None, :] * stride_mn
    # 32 bits need not hold a step.
    stride_kn = tl.cast(stride_kn, tl.int64)
    stride_vn = tl.cast(stride_vn, tl.int64)
    stride_mn = tl.cast(stride_mn, tl.int64)
    end = KEYS
    # Blocks of keys that all exist and that all positions read, then the others.
    whole = KEYS // BLOCK_N
    if CAUSAL:
        end = tl.minimum(KEYS, (position + 1) * BLOCK_M)
        whole = tl.minimum(whole, (position * BLOCK_M + 1) // BLOCK_N)
    middle = whole * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    total = _add_keys(
        queries, gradients, largest, logarithm, sums, total, keys, values, masks, offsets_m, 0, middle, KEYS,
        stride_kn, stride_vn, stride_mn, SCALE, DIM, MASK, CAUSAL, True, BLOCK_N, BLOCK_D, PRECISION,
    )  # fmt: skip
    keys += middle * stride_kn
    values += middle * stride_vn
    masks += middle * stride_mn
    total = _add_keys(
        queries, gradients, largest, logarithm, sums, total, keys, values, masks, offsets_m, middle, end, KEYS,
        stride_kn, stride_vn, stride_mn, SCALE, DIM, MASK, CAUSAL, False, BLOCK_N, BLOCK_D, PRECISION,
    )  # fmt: skip
    place = out + ((batch * LENGTH + rows[:, None]) * HEADS + head) * DIM + offsets_d[None, :]
    tl.store(place, (total * SCALE).to(out.dtype.element_ty), mask=is_row[:, None] & in_dim[None, :])
