"""Resize and Upsample: one axis after the other, each as a weighted sum of few neighbours.

Where the neighbours are and what they weigh depends on sizes alone: for sizes that are known these are constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from aotpack.export.onnx.base.errors import NotConstantError
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known, as_numbers

Tensor = torch.Tensor


@dataclass(frozen=True)
class _Axis:
    """How an axis is resized.

    Attributes:
        size, new: the sizes before and after.
        scale: their ratio as the node has it.
        roi: the part that is cropped, from 0 to 1, as numbers or tensors; of `tf_crop_and_resize` alone.
    """

    size: Any
    new: Any
    scale: Any
    roi: tuple[Any, Any]

    @property
    def is_static(self) -> bool:
        return all(isinstance(v, (int, float)) for v in (self.size, self.new, self.scale, *self.roi))

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cropped, as far as it is known."""
        return all(isinstance(v, (int, float)) for v in self.roi) and self.roi == (0.0, 1.0)


@dataclass(frozen=True)
class _Kernel:
    """How neighbours are weighed: the attributes of the node."""

    mode: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    coordinates: str
    extrapolation: float

    def sources(self, xp: Any, y: Any, axis: _Axis) -> Any:
        """Where elements `y` of the result are in the tensor, as fractions of elements."""
        size, scale = axis.size, axis.scale
        width = scale * size
        match self.coordinates:
            case "half_pixel":
                return (y + 0.5) / scale - 0.5
            case "asymmetric":
                return y / scale
            case "pytorch_half_pixel":
                return _of_one(xp, width, y * 0.0 - 0.5, lambda _: (y + 0.5) / scale - 0.5)
            case "align_corners":
                return _of_one(xp, width, y * 0.0, lambda w: y * ((size - 1) / (w - 1)))
            case "half_pixel_symmetric":
                offset = size / 2 * (1 - axis.new / width)
                return offset + (y + 0.5) / scale - 0.5
            case "tf_crop_and_resize":
                start, end = axis.roi
                first = y * 0.0 + (end - start) * (size - 1) / 2
                place = _of_one(xp, width, first, lambda w: y * ((end - start) * (size - 1) / (w - 1)))
                return place + start * (size - 1)
        raise ValueError(f"the coordinate transformation {self.coordinates!r} is unknown")

    def place(self, xp: Any, x: Any) -> Any:
        """The nearest element."""
        match self.nearest:
            case "round_prefer_floor":
                return xp.ceil(x - 0.5)
            case "round_prefer_ceil":
                return xp.floor(x + 0.5)
            case "floor":
                return xp.floor(x)
            case "ceil":
                return xp.ceil(x)
        raise ValueError(f"the nearest mode {self.nearest!r} is unknown")

    def reach(self, scale: Any) -> tuple[int, float]:
        """How many neighbours to either side, and by what their distances are multiplied."""
        own = 1 if self.mode == "linear" else 2
        if not self.antialias:
            return own, 1.0
        if not isinstance(scale, (int, float)):
            raise NotConstantError("antialiasing needs a scale that is known when the archive is built")
        shrink = min(float(scale), 1.0)
        return -math.floor(-own / shrink), shrink

    def weight(self, xp: Any, distance: Any) -> Any:
        """What neighbours weigh by their distance."""
        d = xp.abs(distance)
        if self.mode == "linear":
            return xp.clip(1 - d, 0, None)
        a = self.cubic
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return xp.where(d <= 1, near, xp.where(d < 2, far, d * 0.0))


def _of_one(xp: Any, width: Any, one: Any, more: Callable[[Any], Any]) -> Any:
    """`one` where the result has one element, else `more(width)`; calls decide where its size is theirs."""
    if isinstance(width, (int, float)):
        return one if width == 1 else more(width)
    known = torch.scalar_tensor(width, dtype=torch.float64)
    return torch.where(known == 1, one, more(known))


def _steps(xp: Any, count: Any) -> Any:
    return xp.arange(count, dtype=xp.float64)


def _column(constant: Any) -> Tensor:
    return torch.tensor(constant) if isinstance(constant, np.ndarray) else constant


def _resized(x: Tensor, place: int, axis: _Axis, kernel: _Kernel) -> Tensor:
    """`x` with one axis resized."""
    xp: Any = np if axis.is_static else torch
    source = kernel.sources(xp, _steps(xp, axis.new), axis)
    shape = [-1 if i == place else 1 for i in range(x.dim())]
    if kernel.mode == "nearest":
        result = _picked(x, place, _limited(xp, kernel.place(xp, source), axis.size))
    else:
        # The neighbours are those around the last element before the source.
        base = xp.ceil(source) - 1
        reach, shrink = kernel.reach(axis.scale)
        places = [base + i for i in range(1 - reach, reach + 1)]
        weights = [kernel.weight(xp, (p - source) * shrink) for p in places]
        if kernel.exclude_outside:
            weights = [
                xp.where((p < 0) | (p > axis.size - 1), w * 0.0, w) for p, w in zip(places, weights, strict=True)
            ]
        if kernel.exclude_outside or kernel.antialias:
            total = sum(weights[1:], weights[0])
            weights = [w / xp.where(total == 0, total * 0.0 + 1, total) for w in weights]
        parts = [
            _picked(x, place, _limited(xp, p, axis.size)) * _column(w).to(x.dtype).reshape(shape)
            for p, w in zip(places, weights, strict=True)
        ]
        result = sum(parts[1:], parts[0])
    if kernel.coordinates == "tf_crop_and_resize":
        outside = _column((source < 0) | (source > axis.size - 1)).reshape(shape)
        result = torch.where(outside, torch.full([], kernel.extrapolation, dtype=result.dtype), result)
    return result


def _limited(xp: Any, places: Any, size: Any) -> Any:
    limited = xp.clip(places, 0, size - 1)
    return limited.astype(np.int64) if xp is np else limited.to(torch.int64)


def _picked(x: Tensor, place: int, places: Any) -> Tensor:
    return x[(slice(None),) * place + (_column(places),)]


def _computed(node: Node, x: Tensor, axes: Sequence[tuple[int, _Axis]], kernel: _Kernel) -> Tensor:
    dtype = x.dtype
    if kernel.mode not in ("nearest", "linear", "cubic"):
        raise node.error(f"the mode {kernel.mode!r} is unknown")
    if kernel.mode == "nearest" or dtype in (torch.float32, torch.float64):
        y = x
    else:
        y = x.to(torch.float64 if dtype in (torch.int32, torch.int64, torch.uint32, torch.uint64) else torch.float32)
    for place, axis in axes:
        cropped = kernel.coordinates == "tf_crop_and_resize" and not axis.is_whole
        same = isinstance(axis.scale, (int, float)) and axis.scale == 1 and _is_same(axis.size, axis.new)
        if not same or cropped:
            y = _resized(y, place, axis, kernel)
    if y.dtype == dtype:
        return y
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        y = torch.round(y).clamp(info.min, info.max)
    return y.to(dtype)


def _is_same(a: Any, b: Any) -> bool:
    return (isinstance(a, int) and isinstance(b, int) and a == b) or a is b or str(a) == str(b)


def _new_size(size: Any, scale: Any) -> Any:
    if isinstance(scale, float) and scale.is_integer():
        return size * int(scale)
    return torch.sym_int(size * scale) if isinstance(size * scale, torch.SymFloat) else math.floor(size * scale)


def _known_scales(node: Node, scales: Any) -> list[float]:
    if isinstance(scales, Known):
        return [float(v) if isinstance(v, (int, float)) else v for v in scales.flat()]
    raise NotConstantError(
        f"node {node.title}: its scales are not constants of the model",
        hint="if they are an input, pass its value to the build: from_onnx(…, constants={name: value}), or --constant "
        "NAME=VALUE",
    )


def _by_scales(x: Tensor, axes: Sequence[int], scales: Sequence[Any], roi: list[Any]) -> list[tuple[int, _Axis]]:
    count = len(axes)
    return [
        (place, _Axis(x.shape[place], _new_size(x.shape[place], scales[i]), scales[i], (roi[i], roi[count + i])))
        for i, place in enumerate(axes)
    ]


def _by_sizes(
    node: Node, x: Tensor, axes: Sequence[int], sizes: Sequence[Any], roi: list[Any]
) -> list[tuple[int, _Axis]]:
    count = len(axes)
    scales: list[Any] = [sizes[i] / x.shape[place] for i, place in enumerate(axes)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        if policy not in ("not_larger", "not_smaller"):
            raise node.error(f"the policy {policy!r} is unknown")
        choose = torch.sym_min if policy == "not_larger" else torch.sym_max
        scale = scales[0]
        for other in scales[1:]:
            scale = choose(scale, other)  # type: ignore[no-untyped-call]
        scales = [scale] * count
        sizes = [torch.sym_int(scale * x.shape[place] + 0.5) for place in axes]
    return [
        (place, _Axis(x.shape[place], sizes[i], scales[i], (roi[i], roi[count + i]))) for i, place in enumerate(axes)
    ]


def _is_empty(value: Any) -> bool:
    return value is None or (value.values.size == 0 if isinstance(value, Known) else value.numel() == 0)


@operator("Resize", since=11, known=(1, 2, 3))
def resize(node: Node, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Tensor:
    kernel = _Kernel(
        node.get("mode", "nearest"),
        node.get("nearest_mode", "round_prefer_floor"),
        node.get("cubic_coeff_a", -0.75),
        bool(node.get("antialias", 0)),
        bool(node.get("exclude_outside", 0)),
        node.get("coordinate_transformation_mode", "half_pixel"),
        node.get("extrapolation_value", 0.0),
    )
    axes = [a % x.dim() for a in node.get("axes") or range(x.dim())]
    part: list[Any] = [0.0] * len(axes) + [1.0] * len(axes)
    if kernel.coordinates == "tf_crop_and_resize":
        if _is_empty(roi):
            raise node.error("it crops, but has no input roi")
        # Tensors, where the call computes them: nothing but places of elements depends on them.
        part = roi.flat() if isinstance(roi, Known) else list(roi.reshape(-1).to(torch.float32).unbind())
        if len(part) != 2 * len(axes):
            raise node.error(f"roi has {len(part)} numbers, not {2 * len(axes)}")
    if _is_empty(sizes):
        if _is_empty(scales):
            raise node.error("it has neither scales nor sizes")
        factors = _known_scales(node, scales)
        if len(factors) != len(axes):
            raise node.error(f"it has {len(factors)} scales for {len(axes)} axes")
        return _computed(node, x, _by_scales(x, axes, factors, part), kernel)
    wanted = as_numbers(sizes)
    if len(wanted) != len(axes):
        raise node.error(f"it has {len(wanted)} sizes for {len(axes)} axes")
    return _computed(node, x, _by_sizes(node, x, axes, wanted, part), kernel)


@operator("Resize", since=10, known=(1,))
@operator("Upsample", since=7, known=(1,))
def upsample(node: Node, x: Tensor, scales: Any = None) -> Tensor:
    factors = node.get("scales") if scales is None else _known_scales(node, scales)
    if factors is None or len(factors) != x.dim():
        raise node.error(f"it has no scale for each of {x.dim()} axes")
    mode = node.get("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    kernel = _Kernel(mode, "floor", -0.75, False, False, "asymmetric", 0.0)
    part = [0.0] * x.dim() + [1.0] * x.dim()
    return _computed(node, x, _by_scales(x, range(x.dim()), [float(f) for f in factors], part), kernel)
