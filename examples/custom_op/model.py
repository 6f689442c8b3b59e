"""A detector with a custom operator: `aotpack build examples/custom_op/model.py -o detections.aotpack`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import aotpack
from aotpack.export import custom_kernel

# 1. The operator for eager PyTorch.


@torch.library.custom_op("vision::nms", mutates_args=())
def nms(boxes: Tensor, scores: Tensor, iou: float) -> Tensor:
    """Indices of the boxes [n, 4] (x1, y1, x2, y2) that are kept, ordered by descending score."""
    order = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while order.numel() > 0:
        best, order = order[0], order[1:]
        kept.append(best)
        corner = torch.minimum(boxes[best, 2:], boxes[order, 2:]) - torch.maximum(boxes[best, :2], boxes[order, :2])
        shared = corner.clamp(min=0).prod(1)
        order = order[shared <= torch.tensor(iou) * (area[best] + area[order] - shared)]
    return torch.stack(kept) if kept else order.clone()


# 2. The fake implementation for tracing: the number of boxes depends on the data.


@nms.register_fake
def _(boxes: Tensor, scores: Tensor, iou: float) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    torch._check(count <= boxes.shape[0])
    return boxes.new_empty(count, dtype=torch.int64)


# 3. The C++ kernel for archives.

custom_kernel("vision::nms", sources=[Path(__file__).with_name("nms.cpp")], function="vision::nms")


class Detections(torch.nn.Module):
    """Selects detections from raw boxes (center, size) and class logits."""

    def __init__(self, iou: float = 0.5) -> None:
        super().__init__()
        self.iou = iou

    def forward(self, boxes: Tensor, logits: Tensor) -> dict[str, Tensor]:
        """boxes [n, 4] and logits [n, classes], float32 → boxes [m, 4] (corners), scores [m], classes [m]."""
        center, half = boxes[:, :2], boxes[:, 2:] / 2
        corners = torch.cat([center - half, center + half], 1)
        scores, classes = logits.sigmoid().max(1)
        kept = torch.ops.vision.nms(corners, scores, self.iou)
        return {"boxes": corners[kept], "scores": scores[kept], "classes": classes[kept]}


def model() -> torch.nn.Module:
    return Detections().eval()


def example_inputs() -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    boxes = torch.rand(100, 4, generator=generator) * torch.tensor([100, 100, 40, 40]) + 1
    return boxes, torch.randn(100, 5, generator=generator)


def dynamic_shapes() -> Any:
    boxes = aotpack.Dim("boxes", 1, 10000)
    return {"boxes": {0: boxes}, "logits": {0: boxes}}
