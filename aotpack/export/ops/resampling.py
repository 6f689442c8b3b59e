"""Resampling, and its backward, in all modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.registry import define

aten = torch.ops.aten

NEAREST, NEAREST_EXACT, LINEAR, CUBIC, LINEAR_AA, CUBIC_AA, LANCZOS_AA = range(7)

_LINEAR_NAMES = ("linear1d", "bilinear2d", "trilinear3d")


def _name(mode: int, spatial: int) -> str:
    """What ATen calls it."""
    names = {
        NEAREST: f"upsample_nearest{spatial}d",
        NEAREST_EXACT: f"_upsample_nearest_exact{spatial}d",
        LINEAR: f"upsample_{_LINEAR_NAMES[spatial - 1]}",
        CUBIC: "upsample_bicubic2d",
        LINEAR_AA: "_upsample_bilinear2d_aa",
        CUBIC_AA: "_upsample_bicubic2d_aa",
        LANCZOS_AA: "_upsample_lanczos2d_aa",
    }
    return names[mode]


def _options(mode: int, align_corners: bool, scales: Sequence[float]) -> list[Any]:
    given = [scale or None for scale in scales]
    return given if mode in (NEAREST, NEAREST_EXACT) else [align_corners, *given]


def _resample(x: Tensor, size: list[int], mode: int, align_corners: bool, scales: list[float]) -> Tensor:
    operator: Callable[..., Tensor] = getattr(aten, _name(mode, len(size))).default
    return operator(x, size, *_options(mode, align_corners, scales)).contiguous()


def _resample_fake(x: Tensor, size: list[int], mode: int, align_corners: bool, scales: list[float]) -> Tensor:
    return x.new_empty([*x.shape[:2], *size])


def _backward(gradient: Tensor, size: list[int], mode: int, align_corners: bool, scales: list[float]) -> Tensor:
    operator: Callable[..., Tensor] = getattr(aten, _name(mode, len(size)) + "_backward").default
    sizes = [*gradient.shape[:2], *size]
    options = _options(mode, align_corners, scales)
    return operator(gradient, list(gradient.shape[2:]), sizes, *options).contiguous()


resample = define(
    "resample(Tensor x, SymInt[] size, int mode, bool align_corners, float[] scales) -> Tensor",
    _resample,
    _resample_fake,
)
resample_backward = define(
    "resample_backward(Tensor gradient, SymInt[] size, int mode, bool align_corners, float[] scales) -> Tensor",
    _backward,
    _resample_fake,
)
