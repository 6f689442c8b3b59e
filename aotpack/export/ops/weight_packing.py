"""Weights in the layouts that the kernels read (csrc/kernels/linear.h, conv.h), as torch tensors.

A packed matrix is one dense tensor [panels, k, 32]: 32 output columns side by side, zero padded. It is the same for
every target.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

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
    packed = weight
    if n % PANEL:
        packed = weight.new_zeros((panels * PANEL, k))
        packed[:n] = weight
    return packed.reshape(panels, PANEL, k).transpose(1, 2).contiguous()


def unpack_linear(packed: torch.Tensor, n: int) -> torch.Tensor:
    """The inverse of `pack_linear`: [n, k]."""
    panels, k, _ = packed.shape
    return packed.transpose(1, 2).reshape(panels * PANEL, k)[:n]


class ConvLayout(enum.Enum):
    """Which layout a convolution's packed weight has, with cg inputs and og outputs per group."""

    PANELS = "panels"
    """[groups, ceil(og/32), taps, cg, 32]: the outputs of each group padded with zeros."""
    GROUPED = "grouped"
    """[ceil(oc/32), taps, cg, 32]: a panel going on over the border of a group."""
    DEPTHWISE = "depthwise"
    """[taps, c]"""


def conv_layout(weight: torch.Tensor, groups: int, transposed: bool) -> ConvLayout:
    """The layout that the kernel wants: the rule of csrc/kernels/conv_layout.h.

    Args:
        weight: [oc, c/groups, *kernel], or [c, oc/groups, *kernel] when transposed.
        groups: number of groups.
        transposed: whether it is a transposed convolution's.
    """
    inputs, outputs = weight.shape[1], weight.shape[0] // groups
    if transposed:
        return ConvLayout.PANELS
    if inputs == 1 and outputs == 1:
        return ConvLayout.DEPTHWISE
    # Panels of their own would be mostly padding for groups of less than a panel.
    return ConvLayout.GROUPED if groups > 1 and 0 < outputs < PANEL else ConvLayout.PANELS


def packed_conv_sizes(weight: torch.Tensor, groups: int, transposed: bool) -> tuple[int, ...]:
    """The sizes of `pack_conv(weight, groups, transposed)`."""
    taps = math.prod(weight.shape[2:])
    layout = conv_layout(weight, groups, transposed)
    if layout is ConvLayout.DEPTHWISE:
        return (taps, groups)
    if layout is ConvLayout.GROUPED:
        return (-(-weight.shape[0] // PANEL), taps, weight.shape[1], PANEL)
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
        By `conv_layout`:
        [groups, ceil((oc/groups)/32), taps, c/groups, 32], zero padded; element (g, p, t, i, j) is tap t of output
        32 p + j of group g for the group's input i;
        [ceil(oc/32), taps, c/groups, 32], zero padded; element (p, t, i, j) is tap t of output 32 p + j for input i of
        that output's group;
        [taps, c] for depthwise.
    """
    taps = math.prod(weight.shape[2:])
    layout = conv_layout(weight, groups, transposed)
    if layout is ConvLayout.DEPTHWISE:
        return weight.reshape(groups, taps).t().contiguous()
    if layout is ConvLayout.GROUPED:
        return _panels(weight.reshape(1, weight.shape[0], weight.shape[1], taps).permute(0, 3, 2, 1)).squeeze(0)
    per_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], taps)
    return _panels(per_group.permute(0, 3, 1, 2) if transposed else per_group.permute(0, 3, 2, 1))


def _panels(per_group: torch.Tensor) -> torch.Tensor:
    """From [groups, taps, inputs, outputs] into [groups, ceil(outputs/32), taps, inputs, 32]."""
    outputs = per_group.shape[-1]
    panels = -(-outputs // PANEL)
    padded = per_group
    if outputs % PANEL:
        padded = per_group.new_zeros((*per_group.shape[:-1], panels * PANEL))
        padded[..., :outputs] = per_group
    split = padded.unflatten(-1, (panels, PANEL))
    panelled: torch.Tensor = split.permute(0, 3, 1, 2, 4).contiguous()
    return panelled


def transform_conv_2x2(packed: torch.Tensor) -> torch.Tensor:
    """Winograd's transform of a packed 3 x 3 weight, for which four outputs take 16 products instead of 36.

    Args:
        packed: [1, ceil(oc/32), 9, c, 32], of `pack_conv`.

    Returns:
        [1, ceil(oc/32), 16, c, 32]: G w G^T of each kernel w, row-major, computed in double and rounded once; G has the
        rows [1, 0, 0], [1/2, 1/2, 1/2], [1/2, -1/2, 1/2] and [0, 0, 1].
    """
    return _transform(packed, _four_of_three)


def transform_conv_4x4(packed: torch.Tensor) -> torch.Tensor:
    """The same for tiles of 16 outputs, which take 36 products instead of 144.

    Args:
        packed: [1, ceil(oc/32), 9, c, 32], of `pack_conv`.

    Returns:
        [1, ceil(oc/32), 36, c, 32]. With a = 11/16, b = 3/2 and d = a^2 - b^2, G has the rows [1, 0, 0] / (a b)^2,
        [1, +-a, a^2] / (2 a^2 d), [1, +-b, b^2] / (-2 b^2 d) and [0, 0, 1].
    """
    return _transform(packed, _six_of_three)


def _transform(packed: torch.Tensor, along: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
    kernels: torch.Tensor = packed.double().unflatten(2, (3, 3))
    return along(along(kernels, 2), 3).flatten(2, 3).to(packed.dtype)


def _four_of_three(kernels: torch.Tensor, dim: int) -> torch.Tensor:
    """G times three rows."""
    first, middle, last = kernels.unbind(dim)
    outer = first + last
    return torch.stack((first, (outer + middle) * 0.5, (outer - middle) * 0.5, last), dim)


# As TilesOfFour of csrc/kernels/winograd_tiles.h.
_A, _B = 11 / 16, 3 / 2
_D = _A**2 - _B**2


def _six_of_three(kernels: torch.Tensor, dim: int) -> torch.Tensor:
    first, middle, last = kernels.unbind(dim)
    rows = [first * (1 / (_A * _B) ** 2)]
    for point, scale in ((_A, 1 / (2 * _A**2 * _D)), (_B, -1 / (2 * _B**2 * _D))):
        even, odd = (first + last * point**2) * scale, middle * (point * scale)
        rows += [even + odd, even - odd]
    return torch.stack((*rows, last), dim)


def _restore_conv(transformed: torch.Tensor) -> torch.Tensor:
    """The inverse of either, as far as rounding lets it be."""
    side = math.isqrt(transformed.shape[2])
    kernels: torch.Tensor = transformed.double().unflatten(2, (side, side))
    for dim in (2, 3):
        first, plus, minus, *_, last = kernels.unbind(dim)
        first, middle = (first, plus - minus) if side == 4 else (first * (_A * _B) ** 2, (plus - minus) * (_A * _D))
        kernels = torch.stack((first, middle, last), dim)
    return kernels.flatten(2, 3).to(transformed.dtype)


def unpack_conv(
    packed: torch.Tensor, out_channels: int, groups: int, kernel: list[int], transposed: bool
) -> torch.Tensor:
    """The inverse of `pack_conv`, also behind `transform_conv_2x2` and `transform_conv_4x4`."""
    if packed.dim() == 5 and kernel == [3, 3] and packed.shape[2] in (16, 36):
        packed = _restore_conv(packed)
    if packed.dim() == 2:
        return packed.t().reshape(out_channels, 1, *kernel)
    if packed.dim() == 4:
        panels, taps, inputs, _ = packed.shape
        outputs_first = packed.permute(0, 3, 2, 1).reshape(panels * PANEL, inputs, taps)
        return outputs_first[:out_channels].reshape(out_channels, inputs, *kernel)
    outputs = out_channels // groups
    _, panels, taps, inputs, _ = packed.shape
    per_group = packed.permute(0, 2, 3, 1, 4).reshape(groups, taps, inputs, panels * PANEL)[..., :outputs]
    if transposed:
        return per_group.permute(0, 2, 3, 1).reshape(groups * inputs, outputs, *kernel)
    return per_group.permute(0, 3, 2, 1).reshape(out_channels, inputs, *kernel)
