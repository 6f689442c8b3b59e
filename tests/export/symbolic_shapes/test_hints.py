"""Likely and largest values of dynamic sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotpack import Dim
from aotpack.export import aot_export
from aotpack.export.symbolic_shapes.hints import size_hint, size_limit

pytestmark = pytest.mark.torch


def test_of_declared_dims() -> None:
    batch, length = Dim("batch", 1, 64), Dim("length", 2)
    program = aot_export(
        lambda x, y: (x + 1, y[:, :, None] * 2),
        (torch.ones(8, 3), torch.ones(8, 5)),
        dynamic_shapes={"x": {0: batch}, "y": {0: batch, 1: length}},
    )
    x, y = (node.meta["val"].shape for node in program.graph.find_nodes(op="placeholder"))
    assert [size_hint(size) for size in (*x, *y, 3 * x[0])] == [8, 3, 8, 5, 24]
    assert [size_limit(size) for size in (*x, 3 * x[0] * x[1], x[0] + 1)] == [64, 3, 576, 65]
    assert size_limit(y[1]) is size_limit(x[0] * y[1]) is None


def test_of_sizes_that_depend_on_data() -> None:
    def positive(x: Tensor) -> Tensor:
        return x[x > 0] + 1

    program = aot_export(positive, (torch.ones(8),))
    sizes = [node.meta["val"].shape[0] for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)]
    assert all(size_hint(size) > 0 and size_limit(size) in (8, None) for size in sizes)
