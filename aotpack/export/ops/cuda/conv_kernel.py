"""The Triton kernels of convolutions."""

from __future__ import annotations

import triton
import triton.language as tl

from aotpack.export.ops.cuda.activation_kernel import activate

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def _read_from(place, tap, STEP: tl.constexpr, PAD: tl.constexpr, DILATION: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Where in one dim of the input a tap of the kernel reads for a place of the result; below 0: nowhere."""
    if TRANSPOSED:
        spread = place + PAD - tap * DILATION
        found = tl.where((spread >= 0) & (spread % STEP == 0), spread // STEP, -1)
    else:
        found = place * STEP - PAD + tap * DILATION
    return found


@triton.jit
def _first_tap(
    place,
    STEP: tl.constexpr,
    PAD: tl.constexpr,
    DILATION: tl.constexpr,
    PERIOD: tl.constexpr,
    KERNEL: tl.constexpr,
):
    """The first tap in one dim of a transposed kernel that reads for a place; KERNEL where there is none."""
    first = KERNEL
    for tap in tl.static_range(PERIOD):
        if tap < KERNEL:
            # What `_read_from` divides, without becoming negative.
            spread = place + PAD + tap * (STEP - 1) * DILATION
            first = tl.where(spread % STEP == 0, tap, first)
    return first


@triton.jit
def conv_kernel(
    x,
    weight,
    bias,
    residual,
    out,
    PLACES,
    ALL_PLACES,
    CHANNELS_OUT,
    DEPTH,
    HEIGHT,
    WIDTH,
    DEPTH_OUT,
    HEIGHT_OUT,
    WIDTH_OUT,
    stride_xn,
    stride_xc,
    stride_xd,
    stride_xh,
    stride_xw,
    stride_wg,
    stride_wo,
    stride_wc,
    stride_wd,
    stride_wh,
    stride_ww,
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
    PERIOD_D: tl.constexpr,
    PERIOD_H: tl.constexpr,
    PERIOD_W: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    PHASED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DOUBLE: tl.constexpr,
    SPLITS: tl.constexpr,
    SMALL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """A convolution as a product: places of the result times taps and channels, times channels of the result.

    `out` is [SPLITS, batch, DEPTH_OUT, HEIGHT_OUT, WIDTH_OUT, groups, CHANNELS_OUT], contiguous; PLACES is how many
    there are in a batch, CHANNELS and CHANNELS_OUT are those of a group. The grid is tiles, groups, splits: each of
    SPLITS blocks sums a part of the taps and channels, and where there are several, without bias, residual and
    activation. `residual`, which is added before the activation, is like `out`. SMALL: 32 bits hold every offset in
    `x`.

    PHASED, for transposed ones: a place reads anything for one tap in PERIOD only, and places that are STEP apart for
    the same taps. A block computes places of one such phase, with its taps alone. PLACES is how many a phase has in a
    batch, ALL_PLACES all phases; the grid's second dim is groups times phases.
    """
    split = tl.program_id(2)
    tiles_n = tl.cdiv(CHANNELS_OUT, BLOCK_N)
    tile_m = tl.program_id(0) // tiles_n
    if not SMALL:
        tile_m = tile_m.to(tl.int64)
    offsets_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_n = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_place = offsets_m < PLACES
    is_out = offsets_n < CHANNELS_OUT
    place = tl.where(is_place, offsets_m, 0)
    # As wide as `place`, and so is every offset.
    if not PHASED:
        group = tl.program_id(1).to(tl.int64)
        groups = tl.num_programs(1)
        w_out = place % WIDTH_OUT
        h_out = place // WIDTH_OUT % HEIGHT_OUT
        d_out = place // WIDTH_OUT // HEIGHT_OUT % DEPTH_OUT
        n_in = place // WIDTH_OUT // HEIGHT_OUT // DEPTH_OUT
        first_w: tl.constexpr = 0
        first_h: tl.constexpr = 0
        first_d: tl.constexpr = 0
        taps_w: tl.constexpr = KERNEL_W
        taps_h: tl.constexpr = KERNEL_H
        taps: tl.constexpr = KERNEL_D * KERNEL_H * KERNEL_W
    else:
        phases: tl.constexpr = STEP_D * STEP_H * STEP_W
        phase = tl.program_id(1) % phases
        group = (tl.program_id(1) // phases).to(tl.int64)
        groups = tl.num_programs(1) // phases
        width = tl.cdiv(WIDTH_OUT, STEP_W)
        height = tl.cdiv(HEIGHT_OUT, STEP_H)
        depth_out = tl.cdiv(DEPTH_OUT, STEP_D)
        n_in = place // width // height // depth_out
        w_phase = phase % STEP_W
        h_phase = phase // STEP_W % STEP_H
        d_phase = phase // STEP_W // STEP_H
        w_out = place % width * STEP_W + w_phase
        h_out = place // width % height * STEP_H + h_phase
        d_out = place // width // height % depth_out * STEP_D + d_phase
        is_place = is_place & (w_out < WIDTH_OUT) & (h_out < HEIGHT_OUT) & (d_out < DEPTH_OUT)
        first_w = _first_tap(w_phase, STEP_W, PAD_W, DILATION_W, PERIOD_W, KERNEL_W)
        first_h = _first_tap(h_phase, STEP_H, PAD_H, DILATION_H, PERIOD_H, KERNEL_H)
        first_d = _first_tap(d_phase, STEP_D, PAD_D, DILATION_D, PERIOD_D, KERNEL_D)
        taps_w = (KERNEL_W - first_w + PERIOD_W - 1) // PERIOD_W
        taps_h = (KERNEL_H - first_h + PERIOD_H - 1) // PERIOD_H
        taps = (KERNEL_D - first_d + PERIOD_D - 1) // PERIOD_D * taps_h * taps_w
        # Where there are none, they are not divided by.
        taps_w = tl.maximum(taps_w, 1)
        taps_h = tl.maximum(taps_h, 1)
    x += group * CHANNELS * stride_xc
    images = n_in * stride_xn
    columns = weight + group * stride_wg + tl.where(is_out, offsets_n, 0) * stride_wo

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if DOUBLE else tl.float32)
    # Channels are taken within a tap where blocks of them fill it, else taps and channels are counted as one.
    within: tl.constexpr = CHANNELS % BLOCK_K == 0
    depth = taps * CHANNELS
    steps = (depth + BLOCK_K - 1) // BLOCK_K
    each = (steps + SPLITS - 1) // SPLITS
    for step in range(split * each, tl.minimum((split + 1) * each, steps)):
        if within:
            # Written so that the compiler sees that blocks of channels are aligned.
            tap = step // (CHANNELS // BLOCK_K)
            channel = step % (CHANNELS // BLOCK_K) * BLOCK_K + tl.arange(0, BLOCK_K)
            tap_w = first_w + tap % taps_w * PERIOD_W
            tap_h = first_h + tap // taps_w % taps_h * PERIOD_H
            tap_d = first_d + tap // taps_w // taps_h * PERIOD_D
            w_in = _read_from(w_out, tap_w, STEP_W, PAD_W, DILATION_W, TRANSPOSED)
            h_in = _read_from(h_out, tap_h, STEP_H, PAD_H, DILATION_H, TRANSPOSED)
            d_in = _read_from(d_out, tap_d, STEP_D, PAD_D, DILATION_D, TRANSPOSED)
            inside = (w_in >= 0) & (w_in < WIDTH) & (h_in >= 0) & (h_in < HEIGHT) & (d_in >= 0) & (d_in < DEPTH)
            rows = images + w_in * stride_xw + h_in * stride_xh + d_in * stride_xd
            a = tl.load(
                x + rows[:, None] + channel[None, :] * stride_xc,
                mask=(inside & is_place)[:, None],
                other=0.0,
            )
            tap_offset = tap_w * stride_ww + tap_h * stride_wh + tap_d * stride_wd
            b = tl.load(columns[None, :] + (tap_offset + channel * stride_wc)[:, None])
        else:
            index = step * BLOCK_K + tl.arange(0, BLOCK_K)
            tap = index // CHANNELS
            channel = index % CHANNELS
            tap_w = first_w + tap % taps_w * PERIOD_W
            tap_h = first_h + tap // taps_w % taps_h * PERIOD_H
            tap_d = first_d + tap // taps_w // taps_h * PERIOD_D
            w_in = _read_from(w_out[:, None], tap_w[None, :], STEP_W, PAD_W, DILATION_W, TRANSPOSED)
            h_in = _read_from(h_out[:, None], tap_h[None, :], STEP_H, PAD_H, DILATION_H, TRANSPOSED)
            d_in = _read_from(d_out[:, None], tap_d[None, :], STEP_D, PAD_D, DILATION_D, TRANSPOSED)
            inside = (w_in >= 0) & (w_in < WIDTH) & (h_in >= 0) & (h_in < HEIGHT) & (d_in >= 0) & (d_in < DEPTH)
            rows = images[:, None] + w_in * stride_xw + h_in * stride_xh + d_in * stride_xd
            a = tl.load(
                x + rows + channel[None, :] * stride_xc,
                mask=inside & is_place[:, None] & (index < depth)[None, :],
                other=0.0,
            )
            tap_offset = tap_w * stride_ww + tap_h * stride_wh + tap_d * stride_wd
            b = tl.load(
                columns[None, :] + (tap_offset + channel * stride_wc)[:, None],
                mask=(index < depth)[:, None],
                other=0.0,
            )
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=total.dtype)
    if HAS_BIAS:
        total += tl.load(bias + group * CHANNELS_OUT + tl.where(is_out, offsets_n, 0))[None, :].to(total.dtype)
    place = place.to(tl.int64)
    places = PLACES
    if PHASED:
        place = ((n_in.to(tl.int64) * DEPTH_OUT + d_out) * HEIGHT_OUT + h_out) * WIDTH_OUT + w_out
        # PLACES are those of a phase.
        places = ALL_PLACES
    result = ((split * places + place[:, None]) * groups + group) * CHANNELS_OUT + offsets_n[None, :]
    is_result = is_place[:, None] & is_out[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + result, mask=is_result, other=0.0).to(total.dtype)
    total = activate(total, ACTIVATION, out.dtype.element_ty.primitive_bitwidth == 16)
    tl.store(out + result, total.to(out.dtype.element_ty), mask=is_result)


@triton.jit
def depthwise_kernel(
    x,
    weight,
    bias,
    out,
    PLACES,
    CHANNELS_OUT,
    DEPTH,
    HEIGHT,
    WIDTH,
    DEPTH_OUT,
    HEIGHT_OUT,
    WIDTH_OUT,
    stride_xn,
    stride_xc,
    stride_xd,
    stride_xh,
    stride_xw,
    stride_wo,
    stride_wd,
    stride_wh,
    stride_ww,
    EACH: tl.constexpr,
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
    TRANSPOSED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DOUBLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A convolution with a group for each channel, of which each makes EACH channels of the result.

    `out` is [batch, DEPTH_OUT, HEIGHT_OUT, WIDTH_OUT, CHANNELS_OUT], contiguous.
    """
    tiles_n = tl.cdiv(CHANNELS_OUT, BLOCK_N)
    offsets_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offsets_n = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_place = offsets_m < PLACES
    is_out = offsets_n < CHANNELS_OUT
    place = tl.where(is_place, offsets_m, 0)
    channel = offsets_n.to(tl.int64)
    w_out = (place % WIDTH_OUT).to(tl.int32)
    h_out = (place // WIDTH_OUT % HEIGHT_OUT).to(tl.int32)
    d_out = (place // WIDTH_OUT // HEIGHT_OUT % DEPTH_OUT).to(tl.int32)
    images = x + place // WIDTH_OUT // HEIGHT_OUT // DEPTH_OUT * stride_xn
    columns = weight + channel * stride_wo
    acc_type: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=acc_type)
    for tap in range(KERNEL_D * KERNEL_H * KERNEL_W):
        tap_w = tap % KERNEL_W
        tap_h = tap // KERNEL_W % KERNEL_H
        tap_d = tap // KERNEL_W // KERNEL_H
        w_in = _read_from(w_out, tap_w, STEP_W, PAD_W, DILATION_W, TRANSPOSED)
        h_in = _read_from(h_out, tap_h, STEP_H, PAD_H, DILATION_H, TRANSPOSED)
        d_in = _read_from(d_out, tap_d, STEP_D, PAD_D, DILATION_D, TRANSPOSED)
        inside = (w_in >= 0) & (w_in < WIDTH) & (h_in >= 0) & (h_in < HEIGHT) & (d_in >= 0) & (d_in < DEPTH)
        rows = images + (w_in.to(tl.int64) * stride_xw + h_in.to(tl.int64) * stride_xh + d_in.to(tl.int64) * stride_xd)
        a = tl.load(
            rows[:, None] + (channel // EACH * stride_xc)[None, :],
            mask=(inside & is_place)[:, None] & is_out[None, :],
            other=0.0,
        )
        taps = tap_w * stride_ww + tap_h * stride_wh + tap_d * stride_wd
        b = tl.load(columns + taps, mask=is_out, other=0.0)
        total += a.to(acc_type) * b.to(acc_type)[None, :]
    if HAS_BIAS:
        total += tl.load(bias + channel, mask=is_out, other=0.0)[None, :].to(acc_type)
    total = activate(total, ACTIVATION, out.dtype.element_ty.primitive_bitwidth == 16)
    result = out + place[:, None] * CHANNELS_OUT + offsets_n[None, :]
    tl.store(result, total.to(out.dtype.element_ty), mask=is_place[:, None] & is_out[None, :])
