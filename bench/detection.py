"""An object detector in the manner of YOLOv8n (Ultralytics 2023): a backbone of cross-stage partial blocks, a path
aggregation network, and a head without anchors whose boxes are expectations over distances.

Images [batch, 3, size, size] -> [batch, 4 + CLASSES, cells], for each cell of the three maps the box (middle, width and
height in pixels) and the probabilities of the classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

CLASSES, BINS = 80, 16
STRIDES = (8, 16, 32)


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU(inplace=True))


class Bottleneck(nn.Module):
    def __init__(self, width: int, shortcut: bool) -> None:
        super().__init__()
        self.first, self.second, self.shortcut = conv(width, width, 3), conv(width, width, 3), shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        return x + y if self.shortcut else y


class CrossStage(nn.Module):
    """Half of the channels pass through bottlenecks; all that comes between is joined."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool = False) -> None:
        super().__init__()
        half = outputs // 2
        self.enter, self.leave = conv(inputs, outputs), conv((2 + count) * half, outputs)
        self.blocks = nn.ModuleList(Bottleneck(half, shortcut) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class PyramidPooling(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = conv(width, width // 2), conv(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Yolo(nn.Module):
    bins: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), CrossStage(32, 32, 1, True))
        self.down_8 = nn.Sequential(conv(32, 64, 3, 2), CrossStage(64, 64, 2, True))
        self.down_16 = nn.Sequential(conv(64, 128, 3, 2), CrossStage(128, 128, 2, True))
        self.down_32 = nn.Sequential(conv(128, 256, 3, 2), CrossStage(256, 256, 1, True), PyramidPooling(256))
        self.up_16, self.up_8 = CrossStage(384, 128, 1), CrossStage(192, 64, 1)
        self.again_16, self.again_32 = conv(64, 64, 3, 2), conv(128, 128, 3, 2)
        self.join_16, self.join_32 = CrossStage(192, 128, 1), CrossStage(384, 256, 1)
        self.boxes = nn.ModuleList(
            nn.Sequential(conv(w, 64, 3), conv(64, 64, 3), nn.Conv2d(64, 4 * BINS, 1)) for w in (64, 128, 256)
        )
        self.scores = nn.ModuleList(
            nn.Sequential(conv(w, 80, 3), conv(80, 80, 3), nn.Conv2d(80, CLASSES, 1)) for w in (64, 128, 256)
        )
        self.register_buffer("bins", torch.arange(BINS, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        map_8 = self.down_8(self.stem(x))
        map_16 = self.down_16(map_8)
        map_32 = self.down_32(map_16)
        top_16 = self.up_16(torch.cat([F.interpolate(map_32, scale_factor=2.0), map_16], 1))
        out_8 = self.up_8(torch.cat([F.interpolate(top_16, scale_factor=2.0), map_8], 1))
        out_16 = self.join_16(torch.cat([self.again_16(out_8), top_16], 1))
        out_32 = self.join_32(torch.cat([self.again_32(out_16), map_32], 1))
        found = []
        for map_, boxes, scores, stride in zip((out_8, out_16, out_32), self.boxes, self.scores, STRIDES, strict=True):
            found.append(torch.cat([self._boxes(boxes(map_), stride), scores(map_).sigmoid().flatten(2)], 1))
        return torch.cat(found, 2)

    def _boxes(self, logits: Tensor, stride: int) -> Tensor:
        """[batch, 4 BINS, rows, columns] -> [batch, 4, rows · columns]."""
        rows, columns = logits.shape[2:]
        shares = logits.unflatten(1, (4, BINS)).flatten(3).softmax(2)
        left, top, right, bottom = (shares * self.bins[:, None]).sum(2).unbind(1)
        y, x = torch.meshgrid(
            torch.arange(rows, device=logits.device) + 0.5,
            torch.arange(columns, device=logits.device) + 0.5,
            indexing="ij",
        )
        x1, y1, x2, y2 = x.flatten() - left, y.flatten() - top, x.flatten() + right, y.flatten() + bottom
        return torch.stack([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1], 1) * stride
