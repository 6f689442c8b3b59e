"""The pass that packs the weights of convolutions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import ops
from aotpack.export.passes.cpu.pack_conv import pack_conv
from tests.export.pass_checks import Weights, calls, count, operators, run

aten = torch.ops.aten


class TestConv:
    @pytest.mark.parametrize(
        ("model", "sizes"),
        [
            (nn.Conv1d(3, 35, 3, stride=2, padding=1), (2, 3, 9)),
            (nn.Conv2d(3, 4, (3, 2), stride=(1, 2), dilation=2, bias=False), (2, 3, 9, 8)),
            (nn.Conv3d(3, 4, 2, padding=1), (2, 3, 4, 5, 3)),
            (nn.Conv2d(6, 6, 3, groups=6), (1, 6, 5, 5)),
            (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 5, 5)),
            (nn.Conv2d(3, 4, 3, padding="same", dilation=2), (1, 3, 5, 6)),
            (nn.Conv2d(3, 4, 3, padding="valid"), (1, 3, 5, 6)),
            (nn.Conv2d(3, 4, 2, padding_mode="circular", padding=1), (1, 3, 5, 6)),
            (nn.ConvTranspose1d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5)),
            (nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=1, groups=2), (2, 4, 5, 4)),
            (nn.ConvTranspose3d(2, 3, 2, dilation=2, bias=False), (1, 2, 3, 3, 3)),
        ],
        ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
    )
    def test_convolutions_with_constant_weights_are_packed(self, model: nn.Module, sizes: tuple[int, ...]) -> None:
        after = run(model.eval(), (torch.randn(sizes),), pack_conv)
        (call,) = calls(after, ops.packed_conv)
        assert not {"aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default"} & set(operators(after))
        # What is promised of strides is what the reference does.
        assert after.graph_module(torch.randn(sizes))[0].stride() == call.meta["val"].stride()

    def test_uneven_same_padding_is_made_explicit(self) -> None:
        model = nn.Conv2d(3, 4, (2, 5), padding="same", dilation=(3, 1)).eval()
        after = run(model, (torch.randn(1, 3, 7, 8),), pack_conv)
        assert operators(after) == ["aten.constant_pad_nd.default", "aotpack.packed_conv.default"]

    def test_unbatched_inputs(self) -> None:
        after = run(nn.Conv2d(3, 4, 3).eval(), (torch.randn(3, 6, 7),), pack_conv)
        assert operators(after) == ["aten.unsqueeze.default", "aotpack.packed_conv.default", "aten.squeeze.dim"]

    def test_the_general_operator(self) -> None:
        def function(x: Tensor, w: Tensor) -> Tensor:
            return torch.ops.aten.convolution(x, w, None, [2], [1], [1], True, [1], 1)

        after = run(Weights(function, torch.randn(3, 4, 3, 3)), (torch.randn(1, 3, 5, 5),), pack_conv)
        assert operators(after) == ["aotpack.packed_conv.default"]

    def test_weights_that_are_not_constant_or_of_other_dtypes_stay(self) -> None:
        model = Weights(lambda x, w: F.conv2d(x, w * x.sum()), torch.randn(4, 3, 3, 3))
        assert count(run(model, (torch.randn(1, 3, 5, 5),), pack_conv), ops.packed_conv) == 0
        double = nn.Conv2d(3, 4, 3).double()
        x = torch.randn(1, 3, 5, 5, dtype=torch.float64)
        assert count(run(double, (x,), pack_conv), ops.packed_conv) == 0

    def test_dynamic_sizes(self) -> None:
        model = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1).eval()
        shapes = {"input": {0: Dim("n"), 2: Dim("h"), 3: Dim("w")}}
        x, other = torch.randn(2, 3, 5, 6), torch.randn(3, 3, 4, 9)
        after = run(model, (x,), pack_conv, dynamic_shapes=shapes, other_args=(other,))
        assert count(after, ops.packed_conv) == 1
