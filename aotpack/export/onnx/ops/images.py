"""Images: sampling by grids, patches put together, deformable convolutions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.ops.shapes import plain_numbers

Tensor = torch.Tensor
functional = torch.nn.functional


@operator("GridSample", since=16)
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    mode = node.get("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    if x.dim() not in (4, 5) or (x.dim() == 5 and mode == "bicubic"):
        raise node.error(f"sampling of {x.dim() - 2} spatial axes ({mode}) is not supported")
    padding, align = node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0))
    if x.dtype != grid.dtype:
        grid = grid.to(x.dtype)
    return functional.grid_sample(x, grid, mode, padding, align)


@operator("Col2Im", since=18, known=(1, 2))
def col2im(node: Node, x: Tensor, image: Any, block: Any) -> Tensor:
    sizes = [int(v) for v in plain_numbers(node, image, "the sizes of its image are")]
    kernel = [int(v) for v in plain_numbers(node, block, "the sizes of its blocks are")]
    rank = len(sizes)
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    pads = node.get("pads", [0] * (2 * rank))
    padded = [s + pads[i] + pads[rank + i] for i, s in enumerate(sizes)]
    counts = [(padded[i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
    if min(counts, default=0) <= 0 or math.prod(counts) != x.shape[2] or x.shape[1] % math.prod(kernel):
        raise node.error(f"blocks {list(x.shape)} do not fit an image of {sizes}")
    # Where element k of the block at b lies: [blocks' elements, blocks], over all axes.
    places = np.zeros([1, 1], dtype=np.int64)
    for i in range(rank):
        own = np.arange(kernel[i])[:, None] * dilations[i] + np.arange(counts[i])[None, :] * strides[i]
        places = places[:, None, :, None] * padded[i] + own[None, :, None, :]
        places = places.reshape(places.shape[0] * kernel[i], -1)
    n, channels = x.shape[0], x.shape[1] // math.prod(kernel)
    flat = torch.zeros([n, channels, math.prod(padded)], dtype=x.dtype)
    flat = flat.index_add(2, torch.tensor(places.reshape(-1)), x.reshape(n, channels, -1))
    y = flat.reshape([n, channels, *padded])
    for i in range(rank):
        y = y.narrow(2 + i, pads[i], sizes[i])
    return y


@operator("DeformConv", since=19)
def deform_conv(
    node: Node, x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    if x.dim() != 4:
        raise node.error("deformable convolutions of other than 2 spatial axes are not supported")
    kernel = list(weight.shape[2:])
    strides, dilations = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    pads, groups = node.get("pads", [0, 0, 0, 0]), node.get("group", 1)
    own = node.get("offset_group", 1)
    n, channels, height, width = x.shape
    rows, columns = offset.shape[2:]
    taps = math.prod(kernel)
    moved = offset.reshape(n, own, taps, 2, rows, columns)
    tap_rows, tap_columns = (
        torch.tensor([t[i] * dilations[i] for t in itertools.product(*map(range, kernel))], dtype=x.dtype)
        for i in range(2)
    )
    y = moved[:, :, :, 0] + (torch.arange(rows) * strides[0] - pads[0])[:, None] + tap_rows[:, None, None]
    z = moved[:, :, :, 1] + torch.arange(columns) * strides[1] - pads[1] + tap_columns[:, None, None]
    image = x.reshape(n, own, channels // own, height * width)
    sampled = bilinear(image, y.reshape(n, own, -1), z.reshape(n, own, -1), height, width)
    sampled = sampled.reshape(n, own, channels // own, taps, rows * columns)
    if mask is not None:
        sampled = sampled * mask.reshape(n, own, 1, taps, rows * columns)
    patches = sampled.reshape(n, groups, channels // groups * taps, rows * columns)
    filters = weight.reshape(groups, weight.shape[0] // groups, -1)
    result = (filters @ patches).reshape(n, weight.shape[0], rows, columns)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def bilinear(image: Tensor, y: Tensor, x: Tensor, height: Any, width: Any) -> Tensor:
    """Samples of images [n, g, c, height * width] at the places y, x [n, g, p]; 0 beyond them: [n, g, c, p]."""
    top, left = torch.floor(y), torch.floor(x)
    result: Any = 0
    for row, column in itertools.product((0, 1), (0, 1)):
        at_row, at_column = top + row, left + column
        share = (1 - (y - at_row).abs()) * (1 - (x - at_column).abs())
        inside = (at_row >= 0) & (at_row <= height - 1) & (at_column >= 0) & (at_column <= width - 1)
        place = at_row.clamp(0, height - 1).to(torch.int64) * width + at_column.clamp(0, width - 1).to(torch.int64)
        values = image.gather(3, place.unsqueeze(2).expand(-1, -1, image.shape[2], -1))
        result = result + values * torch.where(inside, share, torch.zeros_like(share)).unsqueeze(2)
    return result


@operator("ImageDecoder", since=20)
def image_decoder(node: Node, data: Tensor) -> Tensor:
    raise node.error("files of images are not decoded", hint="decode them before the model, and pass their pixels")
