"""Weights in the layouts that the kernels read (csrc/kernels/linear.h, conv.h), as torch tensors.

A packed matrix is one dense tensor [panels, k, 32]: 32 output columns side by side, zero padded. It is the same for
every target.
"""

from __future__ import annotations

import torch

PANEL = 32


def packed_linear_sizes(weight: torch.Tensor) -> tuple[int, ...]:
    """The sizes of `pack_linear(weight)`: [ceil(n/32), k, 32]."""
    n, k = weight.shape
    return (-(-n // PANEL), k, PANEL)


def pack_linear(weight: torch.Tensor) -> torch.Tensor:
    """Packs a linear's weight.

    Args:
        weight: [n, k], as torch.nn.Linear holds it.

    Returns:
        [ceil(n/32), k, 32]; element (p, i, j) is weight[32 p + j, i], zero beyond n.
    """
    n, k = weight.shape
    panels = -(-n // PANEL)
    packed = weight.new_zeros((panels * PANEL, k))
    packed[:n] = weight
    return packed.view(panels, PANEL, k).transpose(1, 2).contiguous()


def unpack_linear(packed: torch.Tensor, n: int) -> torch.Tensor:
    """The inverse of `pack_linear`: [n, k]."""
    panels, k, _ = packed.shape
    return packed.transpose(1, 2).reshape(panels * PANEL, k)[:n]


def is_depthwise(weight: torch.Tensor, groups: int, transposed: bool) -> bool:
    """Whether a convolution has one input and one output channel per group."""
    return not transposed and weight.shape[1] == 1 and weight.shape[0] == groups


def packed_conv_sizes(weight: torch.Tensor, groups: int, transposed: bool) -> tuple[int, ...]:
    """The sizes of `pack_conv(weight, groups, transposed)`."""
    taps = 1
    for size in weight.shape[2:]:
        taps *= size
    if is_depthwise(weight, groups, transposed):
        return (taps, groups)
    first, second = weight.shape[0] // groups, weight.shape[1]
    inputs, outputs = (first, second) if transposed else (second, first)
    return (groups, -(-outputs // PANEL), taps, inputs, PANEL)


def pack_conv(weight: torch.Tensor, groups: int, transposed: bool) -> torch.Tensor:
    """Packs a convolution's weight.

    Args:
        weight: [oc, c/groups, *kernel], or [c, oc/groups, *kernel] when transposed.
        groups: number of groups.
        transposed: whether it is a transposed convolution's.

    Returns:
        [groups, ceil((oc/groups)/32), taps, c/groups, 32] zero padded; [taps, c] for depthwise.
    """
    taps = 1
    for size in weight.shape[2:]:
        taps *= size
    if is_depthwise(weight, groups, transposed):
        return weight.reshape(groups, taps).t().contiguous()
    if transposed:
        per_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], taps)
        per_group = per_group.permute(0, 3, 1, 2)
    else:
        per_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], taps)
        per_group = per_group.permute(0, 3, 2, 1)
    # Now [groups, taps, c/groups, oc/groups].
    outputs = per_group.shape[-1]
    panels = -(-outputs // PANEL)
    padded = weight.new_zeros((*per_group.shape[:-1], panels * PANEL))
    padded[..., :outputs] = per_group
    split = padded.view(*per_group.shape[:-1], panels, PANEL)
    return split.permute(0, 3, 1, 2, 4).contiguous()


def unpack_conv(
    packed: torch.Tensor, out_channels: int, groups: int, kernel: list[int], transposed: bool
) -> torch.Tensor:
    """The inverse of `pack_conv`."""
    if packed.dim() == 2:
        return packed.t().reshape(out_channels, 1, *kernel)
    outputs = out_channels // groups
    _, panels, taps, inputs, _ = packed.shape
    per_group = packed.permute(0, 2, 3, 1, 4).reshape(groups, taps, inputs, panels * PANEL)[..., :outputs]
    if transposed:
        return per_group.permute(0, 2, 3, 1).reshape(groups * inputs, outputs, *kernel)
    return per_group.permute(0, 3, 2, 1).reshape(out_channels, inputs, *kernel)
