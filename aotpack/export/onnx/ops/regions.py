"""Regions of images: pooling of regions, and the choice among boxes."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known, as_numbers, as_tensor
from aotpack.export.torch_compat.higher_order import scan_of

Tensor = torch.Tensor


# ---- pooling --------------------------------------------------------------------------------------------------------


@operator("RoiAlign", since=10)
def roi_align(node: Node, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    rows, columns = node.get("output_height", 1), node.get("output_width", 1)
    ratio, mode = node.get("sampling_ratio", 0), node.get("mode", "avg")
    half = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 16 else "output_half_pixel")
    is_half = half == "half_pixel"
    places = rois * node.get("spatial_scale", 1.0) - (0.5 if is_half else 0.0)
    left, top, right, bottom = places.unbind(1)
    height, width = bottom - top, right - left
    if not is_half:
        height, width = height.clamp(min=1), width.clamp(min=1)
    y_samples, y_counts = _samples(top, height / rows, rows, ratio)
    x_samples, x_counts = _samples(left, width / columns, columns, ratio)
    # [regions, rows, samples] and [regions, columns, samples].
    ys, xs = _Line(y_samples, y_counts, x.shape[2]), _Line(x_samples, x_counts, x.shape[3])
    image = x.flatten(2)[batch]
    parts = []
    for y_place, y_weight in ys.ends:
        for x_place, x_weight in xs.ends:
            place = y_place[:, :, :, None, None] * x.shape[3] + x_place[:, None, None, :, :]
            weight = y_weight[:, :, :, None, None] * x_weight[:, None, None, :, :]
            flat = place.reshape(place.shape[0], 1, -1).expand(-1, x.shape[1], -1)
            values = image.gather(2, flat).reshape(place.shape[0], x.shape[1], *place.shape[1:])
            parts.append(values * weight.unsqueeze(1))
    if mode == "avg":
        total = (parts[0] + parts[1] + parts[2] + parts[3]).sum((3, 5))
        count = (y_counts[:, None] * x_counts[:, None]).clamp(min=1)
        return total / count.reshape(-1, 1, 1, 1).to(total.dtype)
    most = torch.maximum(torch.maximum(parts[0], parts[1]), torch.maximum(parts[2], parts[3]))
    used = ys.used[:, :, :, None, None] & xs.used[:, None, None, :, :]
    return torch.where(used.unsqueeze(1), most, -math.inf).amax((3, 5))


def _samples(start: Tensor, size: Tensor, bins: int, ratio: int) -> tuple[Tensor, Tensor]:
    """Places of samples [regions, bins, samples] along an axis, and how many of them count in each region."""
    if ratio > 0:
        counts = torch.full_like(size, ratio, dtype=torch.int64)
        most: Any = ratio
    else:
        counts = torch.ceil(size).to(torch.int64)
        most = counts.amax().clamp(min=1).item()
        torch._check(most >= 1)
    step = size / counts.clamp(min=1).to(size.dtype)
    bin_starts = start[:, None] + torch.arange(bins).to(size.dtype) * size[:, None]
    within = (torch.arange(most).to(size.dtype) + 0.5) * step[:, None]
    return bin_starts[:, :, None] + within[:, None, :], counts


class _Line:
    """Samples along an axis between the two elements around them.

    Attributes:
        used: whether a sample counts.
        ends: of both elements: where it is, and its weight.
    """

    def __init__(self, places: Tensor, counts: Tensor, size: Any) -> None:
        inside = (places >= -1) & (places <= size)
        self.used = (torch.arange(places.shape[2]) < counts[:, None])[:, None, :].expand(places.shape)
        limited = places.clamp(min=0)
        low = torch.floor(limited).clamp(max=size - 1)
        fraction = torch.where(low >= size - 1, torch.zeros_like(limited), limited - low)
        high = (low + 1).clamp(max=size - 1)
        valid = inside & self.used
        zero = torch.zeros_like(fraction)
        self.ends = [
            (low.to(torch.int64), torch.where(valid, 1 - fraction, zero)),
            (high.to(torch.int64), torch.where(valid, fraction, zero)),
        ]


@operator("MaxRoiPool")
def max_roi_pool(node: Node, x: Tensor, rois: Tensor) -> Tensor:
    rows, columns = node.require("pooled_shape")
    # Halves are rounded away from zero.
    scaled = rois[:, 1:] * node.get("spatial_scale", 1.0)
    edges = torch.sign(scaled) * torch.floor(scaled.abs() + 0.5)
    left, top, right, bottom = edges.unbind(1)
    image = x[rois[:, 0].to(torch.int64)]
    by_columns = _most(image, 3, left, right, columns)
    return _most(by_columns, 2, top, bottom, rows)


def _most(x: Tensor, axis: int, start: Tensor, end: Tensor, bins: int) -> Tensor:
    """The maximum of each bin along an axis, 0 for empty bins."""
    size = (end - start + 1).clamp(min=1) / bins
    number = torch.arange(bins).to(size.dtype)
    limit = x.shape[axis]
    low = (torch.floor(number * size[:, None]) + start[:, None]).clamp(0, limit)
    high = (torch.ceil((number + 1) * size[:, None]) + start[:, None]).clamp(0, limit)
    place = torch.arange(limit)
    # [regions, bins, size]
    inside = (place >= low[:, :, None]) & (place < high[:, :, None])
    moved = x.movedim(axis, -1)
    parts = [
        torch.where(inside[:, i].reshape(-1, *[1] * (moved.dim() - 2), limit), moved, -math.inf).amax(-1)
        for i in range(bins)
    ]
    result = torch.stack(parts, axis)
    return torch.where(result == -math.inf, torch.zeros_like(result), result)


# ---- boxes ----------------------------------------------------------------------------------------------------------


@operator("NonMaxSuppression", since=10, known=(2,))
def non_max_suppression(
    node: Node,
    boxes: Tensor,
    scores: Tensor,
    most: Any = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
) -> Tensor:
    limit = as_numbers(most)[0] if most is not None else 0
    if isinstance(limit, int) and limit <= 0:
        return torch.zeros([0, 3], dtype=torch.int64)
    count = boxes.shape[1]
    steps: Any = torch.sym_min(count, limit) if isinstance(most, Known) else count
    y1, x1, y2, x2 = _corners(boxes, node.get("center_point_box", 0))
    areas = (y2 - y1) * (x2 - x1)
    threshold = torch.zeros([], dtype=boxes.dtype) if overlap is None else overlap.reshape([])
    left = scores.clone()
    if least is not None:
        left = torch.where(scores > least.reshape([]), scores, -math.inf)

    def step(left: Tensor, _: Tensor, *of_boxes: Tensor) -> list[Tensor]:
        y1, x1, y2, x2, areas, threshold = of_boxes
        best, place = left.max(2, keepdim=True)
        valid = best > -math.inf

        def at(values: Tensor) -> Tensor:
            return values.unsqueeze(1).expand(left.shape).gather(2, place)

        rows = torch.minimum(at(y2), y2.unsqueeze(1)) - torch.maximum(at(y1), y1.unsqueeze(1))
        columns = torch.minimum(at(x2), x2.unsqueeze(1)) - torch.maximum(at(x1), x1.unsqueeze(1))
        common = rows.clamp(min=0) * columns.clamp(min=0)
        union = at(areas) + areas.unsqueeze(1) - common
        overlaps = (common > 0) & (union > 0) & (common > threshold * union)
        own = torch.arange(left.shape[2]) == place
        return [torch.where(overlaps | own, -math.inf, left), torch.where(valid, place, -1).squeeze(2)]

    numbers = torch.zeros([steps, 1], dtype=boxes.dtype)
    constants = [v.contiguous() for v in (y1, x1, y2, x2, areas, threshold)]
    _, picked = scan_of(step, [left], [numbers], constants)
    # [batch, class, step]
    picked = picked.permute(1, 2, 0)
    chosen = picked >= 0
    if not isinstance(most, Known):
        chosen = chosen & (torch.arange(picked.shape[2]) < as_tensor(most).reshape([]))
    where = torch.nonzero(chosen)
    return torch.cat([where[:, :2], picked[chosen].unsqueeze(1)], 1)


def _corners(boxes: Tensor, centred: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = boxes.unbind(2)
    if centred:
        return b - d / 2, a - c / 2, b + d / 2, a + c / 2
    return torch.minimum(a, c), torch.minimum(b, d), torch.maximum(a, c), torch.maximum(b, d)
