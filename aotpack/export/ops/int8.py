"""Convolutions and linears of 8-bit activations by int8 weights (csrc/kernels/conv_int8.h)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aotpack.export.ops.int8_packing import Runs, unpack
from aotpack.export.ops.layout import channels_last_strides
from aotpack.export.ops.registry import define

# Kinds of results; the kernel knows them by these numbers.
RESULTS = (torch.float32, torch.uint8, torch.int8)

# Places in the tensor `limits`.
X_ZERO, Y_ZERO, LOW, HIGH, ROUND_FIRST, KEEP, GAIN, RESIDUAL_ZERO, LOW_AFTER, HIGH_AFTER, WEIGHT_ZEROS = range(11)
LIMITS = 11


def int8_conv_sizes(
    x: Tensor,
    out_channels: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int | torch.SymInt]:
    """The result's sizes; `padding` has what is before each dim, then what is after each."""
    rank = len(kernel)
    sizes: list[int | torch.SymInt] = [x.shape[0], out_channels]
    for d, size in enumerate(x.shape[2:]):
        reach = dilation[d] * (kernel[d] - 1) + 1
        sizes.append((size + padding[d] + padding[rank + d] - reach) // stride[d] + 1)
    return sizes


def _finished(sums: Tensor, channels: Tensor, limits: Tensor, residual: Tensor | None, result: int) -> Tensor:
    """From exact sums [n, oc, ...] to the result; `channels` has the rows of real channels alone."""
    shape = [1, -1] + [1] * (sums.dim() - 2)
    factor, offset = (channels[row].view(torch.float32).reshape(shape) for row in (1, 2))
    v = sums.to(torch.float32) * factor + offset
    v = v.clamp(limits[LOW], limits[HIGH])
    if residual is not None:
        v = torch.where(limits[ROUND_FIRST] != 0, torch.round(v), v)
        v = v * limits[KEEP] + (residual.to(torch.float32) - limits[RESIDUAL_ZERO]) * limits[GAIN]
        v = v.clamp(limits[LOW_AFTER], limits[HIGH_AFTER])
    if RESULTS[result] == torch.float32:
        return v
    return (torch.round(v) + limits[Y_ZERO]).to(torch.int32).to(RESULTS[result])


def _unsigned(x: Tensor) -> Tensor:
    return x.to(torch.float64) + (128 if x.dtype == torch.int8 else 0)


def _conv(
    x: Tensor,
    weight: Tensor,
    channels: Tensor,
    limits: Tensor,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    result: int,
) -> Tensor:
    runs = Runs.of(x.shape[1], out_channels, groups, kernel, dilation)
    dense, own = unpack(weight, runs), runs.own_columns(channels)
    rank = len(kernel)
    outside = [side for d in reversed(range(rank)) for side in (padding[d], padding[rank + d])]
    # Sums of doubles are exact.
    centred = torch.constant_pad_nd(_unsigned(x) - limits[X_ZERO], outside)
    zero = own[3].to(torch.float64).reshape(-1, 1, *([1] * rank))
    correction = limits[X_ZERO] * (dense - zero).flatten(1).sum(1)
    sums = torch.convolution(centred, dense - zero, None, stride, [0] * rank, dilation, False, [0] * rank, groups) + (
        own[0] + correction
    ).reshape(1, -1, *([1] * rank))
    y = _finished(sums, own, limits, residual, result)
    return torch.empty_strided(y.shape, channels_last_strides(y.shape), dtype=y.dtype).copy_(y)


def _conv_fake(
    x: Tensor,
    weight: Tensor,
    channels: Tensor,
    limits: Tensor,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    result: int,
) -> Tensor:
    sizes = int8_conv_sizes(x, out_channels, kernel, stride, padding, dilation)
    return x.new_empty_strided(sizes, channels_last_strides(sizes), dtype=RESULTS[result])


int8_conv = define(
    "int8_conv(Tensor x, Tensor weight, Tensor channels, Tensor limits, Tensor? residual, int out_channels, "
    "int[] kernel, int[] stride, int[] padding, int[] dilation, int groups, int result) -> Tensor",
    _conv,
    _conv_fake,
)


def _linear(
    x: Tensor, weight: Tensor, channels: Tensor, limits: Tensor, residual: Tensor | None, out_features: int, result: int
) -> Tensor:
    rows = x.reshape(-1, x.shape[-1], 1)
    other = None if residual is None else residual.reshape(-1, out_features, 1)
    y = _conv(rows, weight, channels, limits, other, out_features, [1], [1], [0, 0], [1], 1, result)
    return y.reshape(*x.shape[:-1], out_features).contiguous()


def _linear_fake(
    x: Tensor, weight: Tensor, channels: Tensor, limits: Tensor, residual: Tensor | None, out_features: int, result: int
) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features), dtype=RESULTS[result])


int8_linear = define(
    "int8_linear(Tensor x, Tensor weight, Tensor channels, Tensor limits, Tensor? residual, int out_features, "
    "int result) -> Tensor",
    _linear,
    _linear_fake,
)
