"""Resampling with antialiasing, of volumes, and all its backwards; the backward of replicating pads.

TorchInductor's own code is used where it fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.nn.windows import gathered, laid_like, least
from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops import resampling

_REAL = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_ANTIALIASED = (resampling.LINEAR_AA, resampling.CUBIC_AA, resampling.LANCZOS_AA)


def _given(scales: Sequence[float | None]) -> list[float]:
    return [0.0 if scale is None or scale <= 0 else float(scale) for scale in scales]


def _forward(operator: Any, mode: int) -> None:
    def resampled(x: Tensor, output_size: Sequence[Any], align_corners: bool, *scales: float | None) -> Any:
        # Of bytes torch rounds the weights too.
        if x.dtype not in _REAL and not (x.dtype == torch.uint8 and mode in _ANTIALIASED):
            return NotImplemented
        given = _given(scales or [None] * len(output_size))
        return laid_like(resampling.resample(x, list(output_size), mode, align_corners, given), x)

    decomposes(operator)(resampled)


def _backward(operator: Any, mode: int) -> None:
    cornered = mode not in (resampling.NEAREST, resampling.NEAREST_EXACT)

    def gradient_of(gradient: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *options: Any) -> Any:
        if gradient.dtype not in _REAL:
            return NotImplemented
        align_corners, scales = (options[0], options[1:]) if cornered else (False, options)
        given = _given(scales or [None] * len(output_size))
        result = resampling.resample_backward(gradient, list(input_size[2:]), mode, align_corners, given)
        return laid_like(result, gradient)

    decomposes(operator)(gradient_of)


def _register() -> None:
    modes: list[tuple[str, int, bool]] = [
        ("upsample_trilinear3d", resampling.LINEAR, True),
        ("_upsample_bilinear2d_aa", resampling.LINEAR_AA, True),
        ("_upsample_bicubic2d_aa", resampling.CUBIC_AA, True),
        ("_upsample_lanczos2d_aa", resampling.LANCZOS_AA, True),
        ("upsample_linear1d", resampling.LINEAR, False),
        ("upsample_bilinear2d", resampling.LINEAR, False),
        ("upsample_bicubic2d", resampling.CUBIC, False),
    ]
    for spatial in (1, 2, 3):
        modes.append((f"upsample_nearest{spatial}d", resampling.NEAREST, False))
        modes.append((f"_upsample_nearest_exact{spatial}d", resampling.NEAREST_EXACT, False))
    for name, mode, forward in modes:
        # Lanczos' came with torch 2.13.
        if forward and hasattr(aten, name):
            _forward(getattr(aten, name).default, mode)
        if hasattr(aten, f"{name}_backward"):
            _backward(getattr(aten, f"{name}_backward").default, mode)


_register()


def _replication_pad_backward(spatial: int) -> Callable[..., Any]:
    def gradient_of(gradient: Tensor, x: Tensor, padding: Sequence[Any]) -> Any:
        # The element i of a dim of n went to i + before; the first and the last one to the padding too.
        result = gradient.to(wide(gradient.dtype))
        for d in range(spatial):
            axis = x.dim() - spatial + d
            size, count = x.shape[axis], result.shape[axis]
            before, behind = padding[2 * (spatial - 1 - d)], padding[2 * (spatial - 1 - d) + 1]
            each = torch.arange(size, device=x.device)
            start = torch.where(each == 0, torch.zeros_like(each), each + before)
            end = torch.where(each == size - 1, torch.full_like(each, count), each + before + 1)
            end = end.clamp(0, None).minimum(torch.full_like(each, count))
            start = torch.minimum(start.clamp_min(0), end)
            most = least(max(before, 0) + max(behind, 0) + 1, count)
            moved = result.movedim(axis, -1)
            values, _, _ = gathered(moved, [start], [end], [most], 0.0)
            result = values.sum(-1).movedim(-1, axis)
        return laid_like(result.to(x.dtype), x)

    return gradient_of


for _spatial in (1, 2, 3):
    decomposes(getattr(aten, f"replication_pad{_spatial}d_backward").default)(_replication_pad_backward(_spatial))
