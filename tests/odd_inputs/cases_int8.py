"""Convolutions and linears of 8-bit activations."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from aotpack.export import ops
from aotpack.export.ops import int8, int8_packing
from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import around

_CPU = "aoti_torch_cpu_"


def cases() -> Iterator[Case]:
    yield from _conv()
    yield from _linear()


def _bytes(*sizes: int, dtype: torch.dtype) -> Tensor:
    bounds = torch.iinfo(dtype)
    return torch.randint(bounds.min, bounds.max + 1, sizes, dtype=dtype)


def _constants(runs: int8_packing.Runs, out_channels: int, unit: float, weight_zeros: bool) -> tuple[Tensor, Tensor]:
    """`channels` and `limits`. Every factor is a power of two, so that no arithmetic rounds before the result does."""
    init = torch.randint(-500, 500, (out_channels,), dtype=torch.int32)
    factor = torch.full((out_channels,), unit)
    offset = torch.randint(-8, 8, (out_channels,)) / 4
    zeros = torch.randint(-9, 9, (out_channels,), dtype=torch.int32) * weight_zeros
    rows = [init, factor.view(torch.int32), offset.view(torch.int32), zeros]
    limits = torch.zeros(int8.LIMITS)
    limits[int8.X_ZERO], limits[int8.Y_ZERO] = 7, 3
    limits[int8.LOW], limits[int8.HIGH] = -3, 110
    limits[int8.KEEP], limits[int8.GAIN], limits[int8.RESIDUAL_ZERO] = 0.5, 0.25, 5
    limits[int8.LOW_AFTER], limits[int8.HIGH_AFTER] = -2, 100
    limits[int8.WEIGHT_ZEROS] = weight_zeros
    return torch.stack([runs.by_column(row) for row in rows]), limits


_SHAPES = [
    # in, out, size, kernel, stride, padding before and after, dilation, groups
    (6, 40, (9, 8), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    (4, 3, (9, 8), (3, 2), (2, 1), (0, 1, 2, 0), (1, 2), 1),
    (33, 33, (7, 7), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 33),
    (8, 12, (6, 5), (1, 3), (1, 2), (0, 0, 0, 0), (1, 1), 4),
    (1, 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    (5, 33, (20,), (4,), (3,), (2, 1), (1,), 1),
    (3, 4, (4, 5, 6), (2, 3, 2), (1, 2, 1), (1, 1, 0, 0, 1, 2), (1, 1, 2), 1),
]


def _conv() -> Iterator[Case]:
    for channels, out_channels, size, kernel, stride, padding, dilation, groups in _SHAPES:
        runs = int8_packing.Runs.of(channels, out_channels, groups, kernel, dilation)
        packed = int8_packing.pack(_bytes(out_channels, channels // groups, *kernel, dtype=torch.int8), runs)
        unit = 2.0 ** -round(math.log2(64 * math.sqrt(channels // groups * math.prod(kernel))))
        how = (out_channels, list(kernel), list(stride), list(padding), list(dilation), groups)
        for batch in (2, 1, 0):
            for dtype in (torch.uint8, torch.int8):
                x = _bytes(batch, channels, *size, dtype=dtype)
                sizes = int8.int8_conv_sizes(x, out_channels, kernel, stride, padding, dilation)
                residual = _bytes(*map(int, sizes), dtype=dtype)
                for result in range(len(int8.RESULTS)):
                    constants = _constants(runs, out_channels, unit, weight_zeros=result == 1)
                    for other in (None, residual):
                        arguments = (x, packed, *constants, other, *how, result)
                        yield Case(f"{_CPU}int8_conv", ops.int8_conv, arguments, packed=(1, 2, 3))


def _linear() -> Iterator[Case]:
    for rows, k, n in around(7, 40, 45, zeros=(0,)):
        runs = int8_packing.Runs.of(k, n, 1, [1], [1])
        packed = int8_packing.pack(_bytes(n, k, 1, dtype=torch.int8), runs)
        unit = 2.0 ** -round(math.log2(64 * math.sqrt(k)))
        for dtype in (torch.uint8, torch.int8):
            x, residual = _bytes(2, rows, k, dtype=dtype), _bytes(2, rows, n, dtype=dtype)
            for result in range(len(int8.RESULTS)):
                constants = _constants(runs, n, unit, weight_zeros=result == 2)
                for other in (None, residual):
                    arguments = (x, packed, *constants, other, n, result)
                    yield Case(f"{_CPU}int8_linear", ops.int8_linear, arguments, packed=(1, 2, 3))
