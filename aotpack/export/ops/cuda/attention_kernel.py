"""The Triton kernel of attention."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def read_keys(
    queries,
    keys,
    values,
    masks,
    largest,
    weight,
    total,
    offsets_m,
    begin,
    end,
    KEYS,
    stride_kn,
    stride_vn,
    stride_mn,
    SCALE: tl.constexpr,
    DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    MASK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WHOLE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_VD: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """Adds keys begin to end: the largest score of each position, the sum of its weights, and its weighted values.

    WHOLE: all of these keys exist, in blocks of BLOCK_N, and every position reads them if the mask lets it. Of SPLITS
    consecutive blocks it reads the first.
    """
    # exp2 is one instruction.
    log2_e: tl.constexpr = 1.4426950408889634
    offsets_n = tl.arange(0, BLOCK_N)
    in_dim = tl.arange(0, BLOCK_D) < DIM
    in_value_dim = tl.arange(0, BLOCK_VD) < VALUE_DIM
    step: tl.constexpr = BLOCK_N * SPLITS
    for n in range(begin, end, step):
        is_key = offsets_n < KEYS - n
        if WHOLE and BLOCK_D == DIM:
            x = tl.load(keys)
        elif WHOLE:
            x = tl.load(keys, mask=in_dim[:, None], other=0.0)
        else:
            x = tl.load(keys, mask=is_key[None, :] & in_dim[:, None], other=0.0)
        score = tl.dot(queries, x, input_precision=PRECISION) * SCALE
        if MASK == 1:
            allowed = tl.load(masks, mask=is_key[None, :], other=0)
            score = tl.where(allowed != 0, score, -float("inf"))
        elif MASK == 2:
            score += tl.load(masks, mask=is_key[None, :], other=0.0).to(tl.float32)
        if not WHOLE:
            score = tl.where(is_key[None, :], score, -float("inf"))
            if CAUSAL:
                score = tl.where(offsets_m[:, None] >= n + offsets_n[None, :], score, -float("inf"))
        larger = tl.maximum(largest, tl.max(score, 1))
        # Rows without a key so far have no largest score to subtract.
        base = tl.where(larger == -float("inf"), 0.0, larger)
        p = tl.exp2((score - base[:, None]) * log2_e)
        rescale = tl.exp2((largest - base) * log2_e)
        weight = weight * rescale + tl.sum(p, 1)
        if WHOLE and BLOCK_VD == VALUE_DIM:
            y = tl.load(values)
        elif WHOLE:
            y = tl.load(values, mask=in_value_dim[None, :], other=0.0)
        else:
            y = tl.load(values, mask=is_key[:, None] & in_value_dim[None, :], other=0.0)
        total = tl.dot(p.to(y.dtype), y, total * rescale[:, None], input_precision=PRECISION)
        largest = larger
        keys += step * stride_kn
        values += step * stride_vn
        masks += step * stride_mn
    return largest, weight, total


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    mask,
    out,
    statistics,
    LENGTH,
    KEYS,
    HEADS,
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
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_VD: tl.constexpr,
    STATISTICS: tl.constexpr = False,
    PRECISION: tl.constexpr = "ieee",
):
    """out[b, m, h, :] = softmax(SCALE * q[b, h, m, :] @ k[b, h', :, :].T + mask[b, h, m, :]) @ v[b, h', :, :].

    h' = h // GROUP; `out` is contiguous. MASK is 0 for none, 1 for one of booleans, 2 for one that is added. With
    CAUSAL, position m reads keys up to m. A row without keys is 0. A block computes BLOCK_M positions of one head, and
    reads the keys BLOCK_N at a time, rescaling its sums whenever it meets a larger score.

    With STATISTICS it writes of each row the largest score and the binary logarithm of the sum of exp(score - largest):
    `statistics` is [batch, HEADS, 2, LENGTH], contiguous, of single precision. Of a row without keys they are 0 and
    infinite, so that all of its weights, computed again, are 0. A sum of both would lose the second where masks add the
    lowest number.
    """
    block = tl.program_id(0)
    blocks = tl.cdiv(LENGTH, BLOCK_M)
    # The last blocks of a causal attention are the longest: first.
    position = blocks - 1 - block % blocks
    batch = (block // blocks // HEADS).to(tl.int64)
    head = (block // blocks % HEADS).to(tl.int64)
    offsets_m = position * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_n = tl.arange(0, BLOCK_N)
    offsets_d = tl.arange(0, BLOCK_D)
    offsets_vd = tl.arange(0, BLOCK_VD)
    is_row = offsets_m < LENGTH
    rows = tl.where(is_row, offsets_m, 0).to(tl.int64)
    in_dim = offsets_d < DIM
    in_value_dim = offsets_vd < VALUE_DIM

    queries = tl.load(
        q
        + batch * stride_qb
        + head * stride_qh
        + rows[:, None] * stride_qm
        + offsets_d[None, :].to(tl.int64) * stride_qd,
        mask=in_dim[None, :],
        other=0.0,
    )
    keys = (
        k
        + batch * stride_kb
        + head // GROUP * stride_kh
        + offsets_n[None, :].to(tl.int64) * stride_kn
        + offsets_d[:, None].to(tl.int64) * stride_kd
    )
    values = (
        v
        + batch * stride_vb
        + head // GROUP * stride_vh
        + offsets_n[:, None].to(tl.int64) * stride_vn
        + offsets_vd[None, :].to(tl.int64) * stride_vd
    )
    masks = (
        mask
        + batch * stride_mb
        + head * stride_mh
        + rows[:, None] * stride_mm
        + offsets_n[None, :].to(tl.int64) * stride_mn
    )
    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_VD), dtype=tl.float32)
    end = KEYS
    # Blocks of keys that all exist and that all positions read, then the others.
    whole = KEYS // BLOCK_N
    if CAUSAL:
        end = tl.minimum(KEYS, (position + 1) * BLOCK_M)
        whole = tl.minimum(whole, (position * BLOCK_M + 1) // BLOCK_N)
    middle = whole * BLOCK_N
    largest, weight, total = read_keys(
        queries, keys, values, masks, largest, weight, total, offsets_m, 0, middle, KEYS, stride_kn, stride_vn,
        stride_mn, SCALE, DIM, VALUE_DIM, MASK, CAUSAL, True, 1, BLOCK_N, BLOCK_D, BLOCK_VD, PRECISION,
    )  # fmt: skip
    keys += middle.to(tl.int64) * stride_kn
    values += middle.to(tl.int64) * stride_vn
    masks += middle.to(tl.int64) * stride_mn
    largest, weight, total = read_keys(
        queries, keys, values, masks, largest, weight, total, offsets_m, middle, end, KEYS, stride_kn, stride_vn,
        stride_mn, SCALE, DIM, VALUE_DIM, MASK, CAUSAL, False, 1, BLOCK_N, BLOCK_D, BLOCK_VD, PRECISION,
    )  # fmt: skip
    if STATISTICS:
        place = statistics + (batch * HEADS + head) * 2 * LENGTH + rows
        tl.store(place, tl.where(weight == 0.0, 0.0, largest), mask=is_row)
        logarithm = tl.where(weight == 0.0, float("inf"), tl.log2(tl.where(weight == 0.0, 1.0, weight)))
        tl.store(place + LENGTH, logarithm, mask=is_row)
    # nan stays.
    total = tl.where((weight == 0.0)[:, None], 0.0, total / tl.where(weight == 0.0, 1.0, weight)[:, None])
    place = out + ((batch * LENGTH + rows[:, None]) * HEADS + head) * VALUE_DIM + offsets_vd[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=is_row[:, None] & in_value_dim[None, :])
