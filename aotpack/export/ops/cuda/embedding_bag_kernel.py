"""The Triton kernel of embedding bags."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def embedding_bag_kernel(
    weight,
    indices,
    offsets,
    scales,
    out,
    ROWS,
    COUNT,
    LAST,
    COLUMNS,
    stride_wr,
    stride_wc,
    stride_ib,
    stride_i,
    stride_o,
    stride_s,
    LENGTH: tl.constexpr,
    MODE: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    PADDING: tl.constexpr,
    DOUBLE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """out[bag, column] = the sum, mean (MODE 1) or maximum (MODE 2) of the rows that the bag names; [bags, COLUMNS].

    The bag has the indices from its offset to the next one's; bag LAST those from its offset to COUNT. With LENGTH,
    each bag has so many, in a row of `indices`, and there are no offsets. Indices that are PADDING do not count, nor do
    rows beyond the table: these are an error. A bag without rows is 0.
    """
    bag = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_columns = columns < COLUMNS
    if LENGTH > 0:
        indices += bag * stride_ib
        first = tl.cast(0, tl.int64)
        end = tl.cast(LENGTH, tl.int64)
    else:
        first = tl.load(offsets + bag * stride_o).to(tl.int64)
        end = tl.cast(COUNT, tl.int64)
        if bag != LAST:
            end = tl.load(offsets + (bag + 1) * stride_o).to(tl.int64)
        tl.device_assert((first >= 0) & (end <= COUNT), "an offset of embedding_bag is out of bounds")
    precise: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    if MODE == 2:
        total = tl.full((BLOCK_COLUMNS,), -float("inf"), dtype=precise)
    else:
        total = tl.zeros((BLOCK_COLUMNS,), dtype=precise)
    # As in eager, a maximum is NaN if the first row is.
    undefined = tl.zeros((BLOCK_COLUMNS,), dtype=tl.int32)
    count = tl.cast(0, tl.int64)
    # No range: interpreters and compilers disagree on ranges of 64 bits.
    place = first
    while place < end:
        places = place + tl.arange(0, BLOCK_ROWS)
        is_place = places < end
        rows = tl.load(indices + places * stride_i, mask=is_place, other=0).to(tl.int64)
        known = (rows >= 0) & (rows < ROWS)
        tl.device_assert(known | (is_place == 0), "an index of embedding_bag is out of bounds")
        used = is_place & known
        if PADDING >= 0:
            used = used & (rows != PADDING)
        values = tl.load(
            weight + rows[:, None] * stride_wr + columns[None, :].to(tl.int64) * stride_wc,
            mask=used[:, None] & in_columns[None, :],
            other=0.0,
        ).to(precise)
        if MODE == 2:
            is_number = values == values
            is_first = (places == tl.min(tl.where(used, places, end), 0)) & (count == 0)
            undefined = tl.maximum(undefined, tl.max((is_first[:, None] & (is_number == 0)).to(tl.int32), 0))
            total = tl.maximum(total, tl.max(tl.where(used[:, None] & is_number, values, -float("inf")), 0))
        else:
            if HAS_SCALES:
                values *= tl.load(scales + places * stride_s, mask=used, other=0.0).to(precise)[:, None]
            total += tl.sum(values, 0)
        count += tl.sum(used.to(tl.int64), 0)
        place += BLOCK_ROWS
    if MODE == 1:
        total = total / tl.maximum(count, 1).to(precise)
    if MODE == 2:
        total = tl.where(count == 0, 0.0, tl.where(undefined != 0, float("nan"), total))
    tl.store(out + bag * COLUMNS + columns, total.to(out.dtype.element_ty), mask=in_columns)
