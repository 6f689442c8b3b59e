"""The Triton kernel of a step of an LSTM or GRU layer."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def _tanh(x):
    # tanh(x) = 2 sigmoid(2x) - 1, which loses the digits of small numbers.
    return tl.where(tl.abs(x) < 0.04, x - x * x * x * 0.3333333333333333, 2.0 * tl.sigmoid(2.0 * x) - 1.0)


@triton.jit
def _product(hidden, weights, total, MATRIX: tl.constexpr, PRECISION: tl.constexpr):
    """total + hidden @ weights.T, of [rows, k] and [columns, k]; the sum over k is left to do without MATRIX."""
    if MATRIX:
        total = tl.dot(hidden, tl.trans(weights), total, input_precision=PRECISION)
    else:
        total += hidden[:, None, :].to(tl.float32) * weights[None, :, :].to(tl.float32)
    return total


@triton.jit
def _gate(total, x, place, is_result, bias, columns, HAS_BIAS: tl.constexpr, MATRIX: tl.constexpr):
    """What the input and the state contribute to a gate, and the state's part alone."""
    if not MATRIX:
        total = tl.sum(total, 2)
    if HAS_BIAS:
        total += tl.load(bias + columns).to(tl.float32)[None, :]
    return total + tl.load(x + place, mask=is_result, other=0.0).to(tl.float32), total


# The code is the same for every step.
@triton.jit(do_not_specialize=["STEP", "BEFORE"])
def recurrent_step_kernel(
    x,
    weight,
    bias,
    initial,
    initial_cell,
    out,
    cell,
    STEP,
    BEFORE,
    ROWS,
    HIDDEN: tl.constexpr,
    FIRST: tl.constexpr,
    LSTM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MATRIX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    """out[STEP] from out[BEFORE], and `cell`, in place; from `initial` and `initial_cell` with FIRST.

    `x` is [steps, ROWS, gates, HIDDEN], what the inputs contribute to the gates; `weight` is [gates, HIDDEN, HIDDEN],
    `out` [steps, ROWS, HIDDEN], states [ROWS, HIDDEN]; all contiguous. The gates are those of torch.nn.LSTM and GRU, in
    its order. A block computes BLOCK_M rows of BLOCK_N units.
    """
    # Where TorchInductor looks for what a kernel writes, integers are constants.
    step = tl.cast(STEP, tl.int64)
    gates: tl.constexpr = 4 if LSTM else 3
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    units = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_result = (rows < ROWS)[:, None] & (units < HIDDEN)[None, :]
    # Rows and units beyond the end read those at the beginning and are not stored.
    rows = (rows % ROWS).to(tl.int64)
    units = units % HIDDEN
    offsets_k = tl.arange(0, BLOCK_K)
    state = initial if FIRST else out + tl.cast(BEFORE, tl.int64) * ROWS * HIDDEN
    if MATRIX:
        zero = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    else:
        zero = tl.zeros((BLOCK_M, BLOCK_N, BLOCK_K), dtype=tl.float32)
    first = zero
    second = zero
    third = zero
    fourth = zero
    for k in range(0, HIDDEN, BLOCK_K):
        in_k = (k + offsets_k < HIDDEN)[None, :]
        hidden = tl.load(state + rows[:, None] * HIDDEN + (k + offsets_k)[None, :], mask=in_k, other=0.0)
        place = weight + units[:, None].to(tl.int64) * HIDDEN + (k + offsets_k)[None, :]
        first = _product(hidden, tl.load(place, mask=in_k, other=0.0), first, MATRIX, PRECISION)
        place += HIDDEN * HIDDEN
        second = _product(hidden, tl.load(place, mask=in_k, other=0.0), second, MATRIX, PRECISION)
        place += HIDDEN * HIDDEN
        third = _product(hidden, tl.load(place, mask=in_k, other=0.0), third, MATRIX, PRECISION)
        if LSTM:
            place += HIDDEN * HIDDEN
            fourth = _product(hidden, tl.load(place, mask=in_k, other=0.0), fourth, MATRIX, PRECISION)

    place = (step * ROWS + rows[:, None]) * gates * HIDDEN + units[None, :]
    first, _ = _gate(first, x, place, is_result, bias, units, HAS_BIAS, MATRIX)
    second, _ = _gate(second, x, place + HIDDEN, is_result, bias, units + HIDDEN, HAS_BIAS, MATRIX)
    third, part = _gate(third, x, place + 2 * HIDDEN, is_result, bias, units + 2 * HIDDEN, HAS_BIAS, MATRIX)
    own = rows[:, None] * HIDDEN + units[None, :]
    if LSTM:
        fourth, _ = _gate(fourth, x, place + 3 * HIDDEN, is_result, bias, units + 3 * HIDDEN, HAS_BIAS, MATRIX)
        if FIRST:
            c = tl.load(initial_cell + own, mask=is_result, other=0.0).to(tl.float32)
        else:
            c = tl.load(cell + own, mask=is_result, other=0.0)
        c = tl.sigmoid(second) * c + tl.sigmoid(first) * _tanh(third)
        tl.store(cell + own, c, mask=is_result)
        result = tl.sigmoid(fourth) * _tanh(c)
    else:
        h = tl.load(state + own, mask=is_result, other=0.0).to(tl.float32)
        z = tl.sigmoid(second)
        # The reset gate applies to the state's part of the third.
        result = (1.0 - z) * _tanh(third - part + tl.sigmoid(first) * part) + z * h
    tl.store(out + step * ROWS * HIDDEN + own, result.to(out.dtype.element_ty), mask=is_result)
