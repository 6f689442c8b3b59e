"""int8 weights in the layout of csrc/kernels/conv_int8.h, as torch tensors. It is the same for every target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aotpack.export.ops.weight_packing import PANEL

_FOUR = 4
_BLOCK = 64


@dataclass(frozen=True)
class Runs:
    """How a weight [oc, cg, *kernel] lies in memory: in runs of bytes that are side by side in the input, in fours.

    Attributes:
        groups, outputs, inputs: of the convolution; outputs and inputs of a group.
        kernel: the taps per dim.
        outer, run: so many runs of so many bytes.
        depthwise: each channel for itself; then there are no runs.
    """

    groups: int
    outputs: int
    inputs: int
    kernel: tuple[int, ...]
    outer: int
    run: int
    depthwise: bool

    @staticmethod
    def of(channels: int, out_channels: int, groups: int, kernel: Sequence[int], dilation: Sequence[int]) -> Runs:
        """For a convolution of `channels` inputs."""
        inputs, outputs = channels // groups, out_channels // groups
        merged = groups == 1 and (dilation[-1] == 1 or kernel[-1] == 1)
        outer = math.prod(kernel[:-1] if merged else kernel)
        run = inputs * kernel[-1] if merged else inputs
        depthwise = groups > 1 and inputs == 1 and outputs == 1
        return Runs(groups, outputs, inputs, tuple(kernel), outer, run, depthwise)

    @property
    def panels(self) -> int:
        """Of a group."""
        return -(-self.outputs // PANEL)

    @property
    def columns(self) -> int:
        if self.depthwise:
            return -(-self.groups // _BLOCK) * _BLOCK
        return self.panels * PANEL * self.groups

    def by_column(self, values: torch.Tensor) -> torch.Tensor:
        """Values of output channels as the kernel reads them: [oc] into [columns], with zeros between groups."""
        if self.depthwise:
            return interleaved(torch.nn.functional.pad(values, (0, self.columns - self.groups)))
        rows = values.reshape(self.groups, self.outputs)
        return torch.nn.functional.pad(rows, (0, self.panels * PANEL - self.outputs)).reshape(-1)

    def own_columns(self, channels: torch.Tensor) -> torch.Tensor:
        """The inverse of `by_column`, for each row of [rows, columns]."""
        if self.depthwise:
            return torch.stack([separated(row) for row in channels])[:, : self.groups]
        return channels.reshape(channels.shape[0], self.groups, -1)[..., : self.outputs].reshape(channels.shape[0], -1)


def interleaved(channels: torch.Tensor) -> torch.Tensor:
    """Channels [columns, ...] of a depthwise convolution in the order of the kernel's vectors."""
    return channels.reshape(-1, 4, 4, 4, *channels.shape[1:]).transpose(1, 2).reshape(channels.shape)


# Its inverse is the same exchange.
separated = interleaved


def pack(weight: torch.Tensor, runs: Runs) -> torch.Tensor:
    """Packs an int8 weight.

    Args:
        weight: [oc, cg, *kernel].
        runs: of the convolution.

    Returns:
        [fours, columns, 4] for depthwise, else [groups, panels, outer * ceil(run/4), 32, 4].
    """
    taps = math.prod(runs.kernel)
    if runs.depthwise:
        each = _taps_of_four(runs)
        fours = -(-taps // each)
        rows = torch.nn.functional.pad(
            weight.reshape(runs.groups, taps), (0, fours * each - taps, 0, runs.columns - runs.groups)
        ).reshape(runs.columns, fours, each)
        if each == _FOUR:
            return interleaved(rows).transpose(0, 1).contiguous()
        # For a pixel and the next one, which share four taps.
        both = [torch.nn.functional.pad(rows, side) for side in ((0, 1), (1, 0))]
        return interleaved(torch.cat(both, 1)).transpose(0, 1).contiguous()
    steps = -(-runs.run // _FOUR)
    # Inputs innermost: as the bytes of a window lie.
    inner = weight.reshape(runs.groups, runs.outputs, runs.inputs, taps).transpose(2, 3)
    rows = inner.reshape(runs.groups, runs.outputs, runs.outer, runs.run)
    rows = torch.nn.functional.pad(rows, (0, steps * _FOUR - runs.run, 0, 0, 0, runs.panels * PANEL - runs.outputs))
    split = rows.reshape(runs.groups, runs.panels, PANEL, runs.outer * steps, _FOUR)
    return split.transpose(2, 3).contiguous()


def _taps_of_four(runs: Runs) -> int:
    """Three taps along the width are a four of their own."""
    return 3 if runs.kernel[-1] == 3 else _FOUR


def unpack(packed: torch.Tensor, runs: Runs) -> torch.Tensor:
    """The inverse of `pack`, in double: [oc, cg, *kernel]."""
    wide = packed.to(torch.float64)
    taps = math.prod(runs.kernel)
    if runs.depthwise:
        each = _taps_of_four(runs)
        fours = separated(wide.transpose(0, 1))[: runs.groups, : -(-taps // each), :each]
        return fours.reshape(runs.groups, -1)[:, :taps].reshape(-1, 1, *runs.kernel)
    rows = wide.transpose(2, 3).reshape(runs.groups, runs.panels * PANEL, runs.outer, -1)
    rows = rows[:, : runs.outputs, :, : runs.run].reshape(runs.groups * runs.outputs, taps, runs.inputs)
    return rows.transpose(1, 2).reshape(-1, runs.inputs, *runs.kernel)
