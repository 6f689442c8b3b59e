"""The Triton kernels of the gradients of convolutions' weights."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def _is_inside(place, SIZE, KERNEL: tl.constexpr, PAD: tl.constexpr):
    """Whether taps read places of the source in one dim."""
    inside = place >= 0
    if KERNEL > 1 or PAD > 0:
        # Otherwise no tap reads beyond the end.
        inside = inside & (place < SIZE)
    return inside


@triton.jit
def _numbers(place, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT):
    """The numbers of places in each dim, from the innermost one to the batch."""
    w = place % WIDTH_OUT
    h = place // WIDTH_OUT % HEIGHT_OUT
    d = place // WIDTH_OUT // HEIGHT_OUT % DEPTH_OUT
    n = place // WIDTH_OUT // HEIGHT_OUT // DEPTH_OUT
    return w, h, d, n


@triton.jit
def _added(w, h, d, n, add_w, add_h, add_d, add_n, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT):
    """The numbers of places that lie a number of places, given by its own numbers, further on; without divisions."""
    w += add_w
    over = w >= WIDTH_OUT
    w = tl.where(over, w - WIDTH_OUT, w)
    h += add_h + over.to(h.dtype)
    over = h >= HEIGHT_OUT
    h = tl.where(over, h - HEIGHT_OUT, h)
    d += add_d + over.to(d.dtype)
    over = d >= DEPTH_OUT
    d = tl.where(over, d - DEPTH_OUT, d)
    n += add_n + over.to(n.dtype)
    return w, h, d, n


@triton.jit
def weight_gradient_kernel(
    rows,
    source,
    out,
    PLACES,
    ROWS,
    DEPTH,
    HEIGHT,
    WIDTH,
    DEPTH_OUT,
    HEIGHT_OUT,
    WIDTH_OUT,
    stride_rp,
    stride_sn,
    stride_sc,
    stride_sd,
    stride_sh,
    stride_sw,
    CHANNELS: tl.constexpr,
    KERNEL_D: tl.constexpr,
    KERNEL_H: tl.constexpr,
    KERNEL_W: tl.constexpr,
    STEP_D: tl.constexpr,
    STEP_H: tl.constexpr,
    STEP_W: tl.constexpr,
    PAD_D: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_D: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    DOUBLE: tl.constexpr,
    FLAT: tl.constexpr,
    WITHIN: tl.constexpr,
    SMALL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """A product of channels of `rows` and of taps and channels of `source`, summed over places.

    `rows` has its channels innermost and its places dense: [PLACES, groups, ROWS], with PLACES = batch * DEPTH_OUT *
    HEIGHT_OUT * WIDTH_OUT. `out` is [splits, groups, ROWS, taps, CHANNELS], contiguous. The grid is tiles, groups,
    splits: each of as many blocks sums a part of the places. FLAT: each place reads the same place of `source`, whose
    places are dense, too. WITHIN: the columns of a tile are channels of one tap, else taps and channels are counted as
    one. SMALL: 32 bits hold every offset in `rows` and `source`.
    """
    group = tl.program_id(1).to(tl.int64)
    groups = tl.num_programs(1)
    split = tl.program_id(2)
    taps: tl.constexpr = KERNEL_D * KERNEL_H * KERNEL_W
    per_tap: tl.constexpr = (CHANNELS + BLOCK_N - 1) // BLOCK_N
    tiles_n: tl.constexpr = taps * per_tap if WITHIN else (taps * CHANNELS + BLOCK_N - 1) // BLOCK_N
    tile_n = tl.program_id(0) % tiles_n
    offsets_m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    is_row = offsets_m < ROWS
    if WITHIN:
        tap = tile_n // per_tap
        channel = tile_n % per_tap * BLOCK_N + tl.arange(0, BLOCK_N)
        is_column = channel < CHANNELS
        column = tap * CHANNELS + channel
    else:
        column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        is_column = column < taps * CHANNELS
        tap = tl.where(is_column, column // CHANNELS, 0)
        channel = column % CHANNELS
    from_w = tap % KERNEL_W * DILATION_W - PAD_W
    from_h = tap // KERNEL_W % KERNEL_H * DILATION_H - PAD_H
    from_d = tap // KERNEL_W // KERNEL_H * DILATION_D - PAD_D
    rows += group * ROWS
    source += group * CHANNELS * stride_sc

    steps = tl.cdiv(PLACES, BLOCK_K)
    each = tl.cdiv(steps, tl.num_programs(2))
    first = split * each
    if not SMALL:
        first = first.to(tl.int64)
    place = first * BLOCK_K + tl.arange(0, BLOCK_K)
    w_out, h_out, d_out, n_out = _numbers(place, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT)
    add_w, add_h, add_d, add_n = _numbers(BLOCK_K, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if DOUBLE else tl.float32)
    for _ in range(tl.minimum(each, steps - split * each)):
        is_place = place < PLACES
        a = tl.load(
            rows + offsets_m[:, None] + (place * stride_rp)[None, :],
            mask=is_row[:, None] & is_place[None, :],
            other=0.0,
        )
        if FLAT:
            b = tl.load(
                source + (place * stride_sw)[:, None] + channel[None, :] * stride_sc,
                mask=is_place[:, None] & is_column[None, :],
                other=0.0,
            )
        elif WITHIN:
            w_in = w_out * STEP_W + from_w
            h_in = h_out * STEP_H + from_h
            d_in = d_out * STEP_D + from_d
            inside = _is_inside(w_in, WIDTH, KERNEL_W, PAD_W) & _is_inside(h_in, HEIGHT, KERNEL_H, PAD_H)
            inside = inside & _is_inside(d_in, DEPTH, KERNEL_D, PAD_D)
            places = n_out * stride_sn + w_in * stride_sw + h_in * stride_sh + d_in * stride_sd
            b = tl.load(
                source + places[:, None] + channel[None, :] * stride_sc,
                mask=(inside & is_place)[:, None] & is_column[None, :],
                other=0.0,
            )
        else:
            w_in = (w_out * STEP_W)[:, None] + from_w[None, :]
            h_in = (h_out * STEP_H)[:, None] + from_h[None, :]
            d_in = (d_out * STEP_D)[:, None] + from_d[None, :]
            inside = _is_inside(w_in, WIDTH, KERNEL_W, PAD_W) & _is_inside(h_in, HEIGHT, KERNEL_H, PAD_H)
            inside = inside & _is_inside(d_in, DEPTH, KERNEL_D, PAD_D)
            places = (n_out * stride_sn)[:, None] + w_in * stride_sw + h_in * stride_sh + d_in * stride_sd
            b = tl.load(
                source + places + channel[None, :] * stride_sc,
                mask=inside & is_place[:, None] & is_column[None, :],
                other=0.0,
            )
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=total.dtype)
        place += BLOCK_K
        if not FLAT:
            w_out, h_out, d_out, n_out = _added(
                w_out, h_out, d_out, n_out, add_w, add_h, add_d, add_n, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT
            )
    result = out + ((split * groups + group) * ROWS + offsets_m)[:, None] * (taps * CHANNELS) + column[None, :]
    tl.store(result, total.to(out.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit
def depthwise_weight_gradient_kernel(
    rows,
    source,
    out,
    PLACES,
    COUNT,
    DEPTH,
    HEIGHT,
    WIDTH,
    DEPTH_OUT,
    HEIGHT_OUT,
    WIDTH_OUT,
    stride_rp,
    stride_sn,
    stride_sc,
    stride_sd,
    stride_sh,
    stride_sw,
    ROW_EACH: tl.constexpr,
    SOURCE_EACH: tl.constexpr,
    KERNEL_D: tl.constexpr,
    KERNEL_H: tl.constexpr,
    KERNEL_W: tl.constexpr,
    STEP_D: tl.constexpr,
    STEP_H: tl.constexpr,
    STEP_W: tl.constexpr,
    PAD_D: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_D: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    DOUBLE: tl.constexpr,
    SMALL: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Sums over places of products of a channel of `rows` and one of `source`, for each tap.

    There are COUNT pairs of channels: number i reads channel i // ROW_EACH of `rows` and i // SOURCE_EACH of `source`.
    `rows` is [PLACES, channels], with its channels innermost and its places dense. `out` is [splits, taps, COUNT],
    contiguous. The grid is tiles, splits. SMALL: 32 bits hold every offset in `rows` and `source`.
    """
    taps: tl.constexpr = KERNEL_D * KERNEL_H * KERNEL_W
    acc_type: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    split = tl.program_id(1)
    tiles_n = tl.cdiv(COUNT, BLOCK_N)
    tap = tl.program_id(0) // tiles_n * BLOCK_T + tl.arange(0, BLOCK_T)
    pair = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    is_tap = tap < taps
    is_pair = pair < COUNT
    from_w = (tap % KERNEL_W * DILATION_W - PAD_W)[:, None]
    from_h = (tap // KERNEL_W % KERNEL_H * DILATION_H - PAD_H)[:, None]
    from_d = (tap // KERNEL_W // KERNEL_H * DILATION_D - PAD_D)[:, None]
    rows += pair // ROW_EACH
    source += (pair // SOURCE_EACH).to(tl.int64) * stride_sc
    from_taps = from_w * stride_sw + from_h * stride_sh + from_d * stride_sd
    steps = tl.cdiv(PLACES, BLOCK_K)
    each = tl.cdiv(steps, tl.num_programs(1))
    first = split * each
    if not SMALL:
        first = first.to(tl.int64)
    place = first * BLOCK_K + tl.arange(0, BLOCK_K)
    w_out, h_out, d_out, n_out = _numbers(place, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT)
    add_w, add_h, add_d, add_n = _numbers(BLOCK_K, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT)
    total = tl.zeros((BLOCK_T, BLOCK_K, BLOCK_N), dtype=acc_type)
    for _ in range(tl.minimum(each, steps - split * each)):
        is_place = place < PLACES
        a = tl.load(rows[None, :] + (place * stride_rp)[:, None], mask=is_place[:, None] & is_pair[None, :], other=0.0)
        inside = _is_inside((w_out * STEP_W)[None, :] + from_w, WIDTH, KERNEL_W, PAD_W)
        inside = inside & _is_inside((h_out * STEP_H)[None, :] + from_h, HEIGHT, KERNEL_H, PAD_H)
        inside = inside & _is_inside((d_out * STEP_D)[None, :] + from_d, DEPTH, KERNEL_D, PAD_D)
        inside = inside & is_tap[:, None] & is_place[None, :]
        places = n_out * stride_sn + w_out * STEP_W * stride_sw + h_out * STEP_H * stride_sh
        places += d_out * STEP_D * stride_sd
        b = tl.load(
            source[None, None, :] + (places[None, :] + from_taps)[:, :, None],
            mask=inside[:, :, None] & is_pair[None, None, :],
            other=0.0,
        )
        total += a.to(acc_type)[None, :, :] * b.to(acc_type)
        place += BLOCK_K
        w_out, h_out, d_out, n_out = _added(
            w_out, h_out, d_out, n_out, add_w, add_h, add_d, add_n, WIDTH_OUT, HEIGHT_OUT, DEPTH_OUT
        )
    result = out + (split.to(tl.int64) * taps + tap)[:, None] * COUNT + pair[None, :]
    tl.store(result, tl.sum(total, 1).to(out.dtype.element_ty), mask=is_tap[:, None] & is_pair[None, :])
