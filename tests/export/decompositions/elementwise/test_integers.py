"""Integers: what TorchInductor computes for floating point alone, or not for 8 bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotpack import Dim
from tests.export.conftest import Build

pytestmark = pytest.mark.torch


def _bytes(dtype: torch.dtype, *sizes: int) -> Tensor:
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, sizes, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_bytes_are_concatenated(build: Build, dtype: torch.dtype) -> None:
    """In any dim and rank, from views and computed values, with empty ones among them; also with other dtypes."""

    def model(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        image = x.reshape(1, -1, 3, 2)
        return (
            torch.cat([x, y]),
            torch.cat([x.t(), y.t()], 1),
            torch.stack([x, x + 1], -1),
            torch.cat([image, image.flip(1)], 3),
            torch.cat([x[:0], y, x.new_zeros(0)]) if y.dim() == 1 else torch.hstack([x, x]),
            torch.cat([x, y.to(torch.uint8), y.to(torch.int8)]),
            torch.cat([x, y.float()]),
        )

    x, y = _bytes(dtype, 4, 6), _bytes(dtype, 3, 6)
    archive = build(model, (x, y), dynamic_shapes={"x": {0: Dim("n", 0, 32)}, "y": {0: Dim("m", 0, 32)}})
    for n, m in ((4, 3), (0, 5), (1, 1), (32, 32), (0, 0)):
        x, y = _bytes(dtype, n, 6), _bytes(dtype, m, 6)
        for actual, expected in zip(archive(x, y), model(x, y), strict=True):
            torch.testing.assert_close(torch.as_tensor(actual), expected)
