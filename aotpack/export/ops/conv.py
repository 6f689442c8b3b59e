"""Convolution with a packed weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.layout import channels_last_strides
from aotpack.export.ops.registry import define
from aotpack.export.ops.weight_packing import unpack_conv


def conv_sizes(
    x: Tensor,
    out_channels: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
) -> list[int | torch.SymInt]:
    """The result's sizes; torch.nn.Conv2d and ConvTranspose2d state the formulas.

    `padding` has a number per dim, or, for a plain convolution, what is before each dim and then what is after each.
    """
    before, after = _sides(padding, len(kernel))
    sizes: list[int | torch.SymInt] = [x.shape[0], out_channels]
    for d, size in enumerate(x.shape[2:]):
        reach = dilation[d] * (kernel[d] - 1) + 1
        if transposed:
            sizes.append((size - 1) * stride[d] - before[d] - after[d] + reach + output_padding[d])
        else:
            sizes.append((size + before[d] + after[d] - reach) // stride[d] + 1)
    return sizes


def _sides(padding: Sequence[int], rank: int) -> tuple[Sequence[int], Sequence[int]]:
    """Before each dim, and after each."""
    return (padding[:rank], padding[rank:]) if len(padding) == 2 * rank else (padding, padding)


def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    act: int,
) -> Tensor:
    dense = unpack_conv(weight, out_channels, groups, kernel, transposed)
    before, after = _sides(padding, len(kernel))
    if before != after:
        # `pad` counts from the last dim.
        pads = [n for sides in zip(reversed(before), reversed(after), strict=True) for n in sides]
        x, padding = torch.constant_pad_nd(x, pads), [0] * len(kernel)
    y = torch.convolution(x, dense, bias, stride, padding, dilation, transposed, output_padding, groups)
    y = BY_NUMBER[act](y if residual is None else y + residual)
    return torch.empty_strided(y.shape, channels_last_strides(y.shape), dtype=y.dtype).copy_(y)


def _conv_fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    act: int,
) -> Tensor:
    sizes = conv_sizes(x, out_channels, kernel, stride, padding, dilation, transposed, output_padding)
    return x.new_empty_strided(sizes, channels_last_strides(sizes))


packed_conv = define(
    "packed_conv(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int out_channels, int[] kernel, "
    "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, int act) "
    "-> Tensor",
    _conv,
    _conv_fake,
)


def _depthwise_block(
    x: Tensor,
    expand_weight: Tensor | None,
    expand_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    project_weight: Tensor | None,
    project_bias: Tensor | None,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    acts: list[int],
) -> Tensor:
    channels, one, none = weight.shape[1], [1, 1], [0, 0]
    if expand_weight is not None:
        x = _conv(x, expand_weight, expand_bias, None, channels, one, one, none, one, False, none, 1, acts[0])
    added = residual if project_weight is None else None
    x = _conv(x, weight, bias, added, channels, kernel, stride, padding, dilation, False, none, channels, acts[1])
    if project_weight is None:
        return x
    return _conv(x, project_weight, project_bias, residual, out_channels, one, one, none, one, False, none, 1, acts[2])


def _depthwise_block_fake(
    x: Tensor,
    expand_weight: Tensor | None,
    expand_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    project_weight: Tensor | None,
    project_bias: Tensor | None,
    residual: Tensor | None,
    out_channels: int,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    acts: list[int],
) -> Tensor:
    sizes = conv_sizes(x, out_channels, kernel, stride, padding, dilation, False, [0, 0])
    return x.new_empty_strided(sizes, channels_last_strides(sizes))


depthwise_block = define(
    "depthwise_block(Tensor x, Tensor? expand_weight, Tensor? expand_bias, Tensor weight, Tensor? bias, "
    "Tensor? project_weight, Tensor? project_bias, Tensor? residual, int out_channels, int[] kernel, int[] stride, "
    "int[] padding, int[] dilation, int[] acts) -> Tensor",
    _depthwise_block,
    _depthwise_block_fake,
)
"""A depthwise 2-d convolution with the pointwise ones before and after it that there are weights for: what
`packed_conv` one after the other computes. `residual` is added by the last of them. `acts` are the three activations.
"""
