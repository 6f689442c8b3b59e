"""Pooling over a dynamic length."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from aotpack import Dim
from tests.export.conftest import Build, check


class Pools(torch.nn.Module):
    """Calls of max_pool1d as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.MaxPool1d(3, 2, padding=1, dilation=2, ceil_mode=True)

    def forward(self, x: torch.Tensor) -> Any:
        pooled, places = F.max_pool1d(x, 4, 1, return_indices=True)
        return self.layer(x), torch.max_pool1d(x, 2), F.max_pool1d(x[0], (3,), stride=(2,)), pooled, places


def test_max_pool1d_of_a_dynamic_length(build: Build) -> None:
    dims = {"x": {0: Dim("batch", 1, 4), 2: Dim("length", 5, 40)}}
    archive = build(Pools(), (torch.randn(2, 3, 16),), dynamic_shapes=dims)
    check(archive, Pools(), *((torch.randn(n, 3, length),) for n, length in ((1, 5), (4, 40), (2, 17))))
