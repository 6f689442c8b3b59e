"""The pass that gives results the strides that were captured."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.passes.cpu.keep_output_layout import keep_output_layout
from aotpack.export.passes.cpu.pack_conv import pack_conv
from tests.export.conftest import Build, check
from tests.export.pass_checks import count, run

aten = torch.ops.aten


class TestOutputLayout:
    def test_results_get_the_captured_strides_back(self) -> None:
        x = torch.randn(2, 3, 8, 8)
        model = nn.Conv2d(3, 4, 3).eval()
        packed = run(model, (x,), pack_conv)
        assert not packed.graph_module(x)[0].is_contiguous()
        after = run(model, (x,), pack_conv, keep_output_layout)
        assert count(after, ops.to_layout) == 1
        assert after.graph_module(x)[0].stride() == model(x).stride()

    def test_channels_last_results_are_not_copied(self) -> None:
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        model = nn.Conv2d(3, 4, 3).eval().to(memory_format=torch.channels_last)
        after = run(model, (x,), pack_conv, keep_output_layout)
        assert count(after, ops.to_layout) == 0
        assert after.graph_module(x)[0].stride() == model(x).stride()

    @pytest.mark.parametrize("low", [0, 1, 2])
    def test_dynamic_contiguous_results_are_not_copied(self, low: int) -> None:
        shapes = {"x": {0: Dim("n", min=low, max=64), 1: Dim("m", min=low, max=64)}}
        args, other = (torch.randn(3, 4, 5),), (torch.randn(7, 2, 5),)
        after = run(lambda x: x + 1, args, keep_output_layout, dynamic_shapes=shapes, other_args=other)
        assert count(after, ops.to_layout) == 0


class Pooled(nn.Module):
    """Operators of torch that look at strides, behind a convolution whose result is channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.gate, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.stem(x).relu()
        gated = y * self.gate(F.adaptive_avg_pool2d(y, 1)).sigmoid()
        normed = self.head(F.group_norm(gated, 2))
        return F.adaptive_avg_pool2d(normed, 1).flatten(1), normed, gated


@pytest.mark.parametrize("example", [1, 2])
def test_a_batch_of_one_in_the_example_fixes_no_layout(build: Build, example: int) -> None:
    model = Pooled().eval()
    dims = {"x": {0: Dim("batch", min=1, max=8)}}
    archive = build(model, (torch.randn(example, 3, 8, 8),), dynamic_shapes=dims)
    check(archive, model, *((torch.randn(batch, 3, 8, 8),) for batch in (1, 2, 8)))
