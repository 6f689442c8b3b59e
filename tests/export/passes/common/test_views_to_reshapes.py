"""The pass that makes reshapes of views."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aotpack.export import ops
from aotpack.export.passes.common.views_to_reshapes import views_to_reshapes
from aotpack.export.passes.cpu.pack_conv import pack_conv
from tests.export.pass_checks import calls, count, run

aten = torch.ops.aten


class TestViews:
    def test_views_become_reshapes(self) -> None:
        after = run(lambda x: (x + 1).view(6).view(-1, 2) * 2, (torch.randn(2, 3),), views_to_reshapes)
        assert (count(after, aten.view.default), count(after, aten.reshape.default)) == (0, 2)

    def test_a_view_over_a_packed_convolution_reads_in_the_order_of_dims(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 3)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
                y = self.conv(x)
                return y.view(2, -1), y.as_strided((2, 5), (36, 2), 1)

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), views_to_reshapes, pack_conv)
        assert count(after, ops.packed_conv) == 1
        (strided,) = calls(after, aten.as_strided.default)
        assert strided.args[0].target is aten.clone.default
