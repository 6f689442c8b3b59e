"""Antialiased resampling of images of bytes: the same bytes as in eager, which rounds weights as Pillow does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import aotpack
from tests.export.conftest import Build

pytestmark = pytest.mark.torch


def resized(x: Tensor) -> dict[str, Tensor]:
    result = {}
    for mode in ("bilinear", "bicubic"):
        for size in ((24, 31), (70, 80), (40, 300), (33, 7), (1, 2)):
            result[f"{mode} {size}"] = F.interpolate(x, size, mode=mode, antialias=True)
        result[f"{mode} corners"] = F.interpolate(x, (13, 29), mode=mode, antialias=True, align_corners=True)
        result[f"{mode} scaled"] = F.interpolate(x, scale_factor=(0.37, 1.7), mode=mode, antialias=True)
        result[f"{mode} part"] = F.interpolate(x[:, :2, 3:], (9, 21), mode=mode, antialias=True)
    if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
        result["lanczos"] = torch.ops.aten._upsample_lanczos2d_aa(x, [17, 50], False)
    return result


@pytest.mark.parametrize("channels", [3, 4, 7])
def test_bytes_are_those_of_eager(build: Build, channels: int) -> None:
    height, width = aotpack.Dim("height", min=20), aotpack.Dim("width", min=20)
    first = torch.randint(0, 256, (2, channels, 41, 62), dtype=torch.uint8)
    model = build(resized, (first,), dynamic_shapes={"x": {2: height, 3: width}})
    for sizes in ((40, 60), (71, 33), (25, 310)):
        noise = torch.randint(0, 256, (2, channels, *sizes), dtype=torch.uint8)
        # Only 0 and 255, where cubics overshoot.
        hard = (noise > 127).to(torch.uint8) * 255
        for x in (noise, hard, noise.to(memory_format=torch.channels_last), noise.flip(3), noise.mT.contiguous().mT):
            got = model(x)
            # torch 2.13 fails for some sizes of up to four channels, whose results are those of more.
            for name, more in resized(torch.cat([x] * 5, 1)).items():
                expected = more[:, : got[name].shape[1]]
                assert got[name].dtype == torch.uint8
                assert torch.equal(got[name], expected), f"{name} of {sizes}"
            if sizes == (71, 33):
                assert all(torch.equal(got[name], expected) for name, expected in resized(x).items())
