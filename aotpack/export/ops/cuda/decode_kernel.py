"""The Triton kernels of attention with few positions: those that generate text, from a cache of keys and values."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.attention_kernel import read_keys

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def _read_by_some(
    mask,
    first_position,
    end_position,
    split,
    steps,
    KEYS,
    stride_mm,
    stride_mn,
    MASK: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The first step of a split with a key that some position reads, and the one after the last such step.

    Step i is block `split + i * SPLITS` of keys.
    """
    # What is read at once.
    block_s: tl.constexpr = 1024 // BLOCK_N
    offsets_s = tl.arange(0, block_s)
    first = steps
    after = 0
    for step in range(0, steps, block_s):
        blocks = (step + offsets_s) * SPLITS + split
        keys = blocks[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        place = mask + keys.to(tl.int64) * stride_mn
        for _ in range(first_position, end_position):
            if MASK == 1:
                read = tl.load(place, mask=keys < KEYS, other=0) != 0
            else:
                read = tl.load(place, mask=keys < KEYS, other=-float("inf")) != -float("inf")
            some = tl.max(read.to(tl.int32), 1) != 0
            first = tl.minimum(first, tl.min(tl.where(some, step + offsets_s, steps), 0))
            after = tl.maximum(after, tl.max(tl.where(some, step + offsets_s + 1, 0), 0))
            place += stride_mm
    return first, after


@triton.jit
def decode_kernel(
    q,
    k,
    v,
    mask,
    out,
    ROWS,
    LENGTH,
    KEYS,
    KEY_HEADS,
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
    VALUE_DIM: tl.constexpr,
    MASK: tl.constexpr,
    SKIP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_VD: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """What `attention_kernel` computes, without CAUSAL, for all heads of a group at once.

    Flash-Decoding (Dao, Haziza, Massa, Sizov 2023): SPLITS blocks divide the keys of a head. Each of them reads every
    SPLITS-th block of BLOCK_N keys, so that they have the same work where a mask hides keys at one end. With several,
    `out` has single precision: the results of the splits, [SPLITS, ROWS, VALUE_DIM], then their largest scores,
    [SPLITS, ROWS], then the sums of their weights, [SPLITS, ROWS]. ROWS is batch * LENGTH * heads, in this order.

    SKIP: one mask holds for all heads of a group. Blocks before the first key that it shows and after the last one are
    not read then.
    """
    tile = tl.program_id(0)
    split = tl.program_id(1)
    tiles = tl.cdiv(LENGTH * GROUP, BLOCK_M)
    batch = (tile // tiles // KEY_HEADS).to(tl.int64)
    key_head = (tile // tiles % KEY_HEADS).to(tl.int64)
    # A row for each head of the group, at each position.
    rows = tile % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = rows < LENGTH * GROUP
    rows = tl.where(is_row, rows, 0)
    positions = (rows // GROUP).to(tl.int64)
    heads = key_head * GROUP + rows % GROUP
    offsets_n = tl.arange(0, BLOCK_N)
    offsets_d = tl.arange(0, BLOCK_D)
    offsets_vd = tl.arange(0, BLOCK_VD)
    in_value_dim = offsets_vd < VALUE_DIM

    queries = tl.load(
        q
        + batch * stride_qb
        + heads[:, None] * stride_qh
        + positions[:, None] * stride_qm
        + offsets_d[None, :].to(tl.int64) * stride_qd,
        mask=(offsets_d < DIM)[None, :],
        other=0.0,
    )
    # Steps of this split, and those whose keys all exist.
    steps = tl.maximum(tl.cdiv(tl.cdiv(KEYS, BLOCK_N) - split, SPLITS), 0)
    whole = tl.maximum(tl.cdiv(KEYS // BLOCK_N - split, SPLITS), 0)
    first = 0
    if SKIP:
        first_position = tile % tiles * BLOCK_M // GROUP
        end_position = tl.minimum(LENGTH, tl.cdiv((tile % tiles + 1) * BLOCK_M, GROUP))
        hidden = mask + batch * stride_mb + key_head * GROUP * stride_mh
        hidden += first_position.to(tl.int64) * stride_mm
        first, steps = _read_by_some(
            hidden, first_position, end_position, split, steps, KEYS, stride_mm, stride_mn, MASK, SPLITS, BLOCK_N
        )
        whole = tl.minimum(whole, steps)
    begin = (split + first * SPLITS) * BLOCK_N
    middle = (split + tl.maximum(whole, first) * SPLITS) * BLOCK_N
    end = (split + steps * SPLITS) * BLOCK_N
    keys = (
        k
        + batch * stride_kb
        + key_head * stride_kh
        + (begin + offsets_n[None, :]).to(tl.int64) * stride_kn
        + offsets_d[:, None].to(tl.int64) * stride_kd
    )
    values = (
        v
        + batch * stride_vb
        + key_head * stride_vh
        + (begin + offsets_n[:, None]).to(tl.int64) * stride_vn
        + offsets_vd[None, :].to(tl.int64) * stride_vd
    )
    masks = (
        mask
        + batch * stride_mb
        + heads[:, None] * stride_mh
        + positions[:, None] * stride_mm
        + (begin + offsets_n[None, :]).to(tl.int64) * stride_mn
    )
    # 32 bits need not hold a step.
    stride_kn = tl.cast(stride_kn, tl.int64)
    stride_vn = tl.cast(stride_vn, tl.int64)
    stride_mn = tl.cast(stride_mn, tl.int64)
    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_VD), dtype=tl.float32)
    largest, weight, total = read_keys(
        queries, keys, values, masks, largest, weight, total, rows, begin, middle, KEYS, stride_kn, stride_vn,
        stride_mn, SCALE, DIM, VALUE_DIM, MASK, False, True, SPLITS, BLOCK_N, BLOCK_D, BLOCK_VD, PRECISION,
    )  # fmt: skip
    skipped = (middle - begin).to(tl.int64)
    keys += skipped * stride_kn
    values += skipped * stride_vn
    masks += skipped * stride_mn
    largest, weight, total = read_keys(
        queries, keys, values, masks, largest, weight, total, rows, middle, end, KEYS, stride_kn, stride_vn,
        stride_mn, SCALE, DIM, VALUE_DIM, MASK, False, False, SPLITS, BLOCK_N, BLOCK_D, BLOCK_VD, PRECISION,
    )  # fmt: skip
    # nan stays.
    total = tl.where((weight == 0.0)[:, None], 0.0, total / tl.where(weight == 0.0, 1.0, weight)[:, None])
    place = (batch * LENGTH + positions) * KEY_HEADS * GROUP + heads
    if SPLITS > 1:
        every = tl.cast(ROWS, tl.int64)
        place += split * every
        scores = out + SPLITS * every * VALUE_DIM + place
        tl.store(scores, largest, mask=is_row)
        tl.store(scores + SPLITS * every, weight, mask=is_row)
    place = out + place[:, None] * VALUE_DIM + offsets_vd[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=is_row[:, None] & in_value_dim[None, :])


@triton.jit
def combine_kernel(
    parts,
    out,
    ROWS,
    VALUE_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_VD: tl.constexpr,
):
    """The sum of what `decode_kernel` computes of each split, weighted; `out` is [ROWS, VALUE_DIM], contiguous."""
    row = tl.program_id(0).to(tl.int64)
    every = tl.cast(ROWS, tl.int64)
    # exp2 is one instruction.
    log2_e: tl.constexpr = 1.4426950408889634
    splits = tl.arange(0, BLOCK_S)
    offsets_vd = tl.arange(0, BLOCK_VD)
    is_split = splits < SPLITS
    in_value_dim = offsets_vd < VALUE_DIM
    place = splits * every + row
    scores = parts + SPLITS * every * VALUE_DIM + place
    largest = tl.load(scores, mask=is_split, other=-float("inf"))
    weights = tl.load(scores + SPLITS * every, mask=is_split, other=0.0)
    results = tl.load(
        parts + place[:, None] * VALUE_DIM + offsets_vd[None, :],
        mask=is_split[:, None] & in_value_dim[None, :],
        other=0.0,
    )
    base = tl.max(largest, 0)
    # Rows without a key have no largest score to subtract.
    weights *= tl.exp2((largest - tl.where(base == -float("inf"), 0.0, base)) * log2_e)
    weight = tl.sum(weights, 0)
    total = tl.sum(results * weights[:, None], 0) / tl.where(weight == 0.0, 1.0, weight)
    tl.store(out + row * VALUE_DIM + offsets_vd, total.to(out.dtype.element_ty), mask=in_value_dim)
