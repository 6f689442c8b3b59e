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


class _Pad(nn.Module):
    def __init__(self, pads: tuple[int, ...], mode: str = "constant", value: float | None = None) -> None:
        super().__init__()
        self.pads, self.mode, self.value = pads, mode, value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.pads, self.mode, self.value)


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

    def test_uneven_same_padding(self) -> None:
        model = nn.Conv2d(3, 4, (2, 5), padding="same", dilation=(3, 1)).eval()
        after = run(model, (torch.randn(1, 3, 7, 8),), pack_conv)
        assert operators(after) == ["aotpack.packed_conv.default"]

    @pytest.mark.parametrize(
        ("conv", "pads", "sizes"),
        [
            (nn.Conv1d(3, 4, 3, stride=2), (0, 1), (2, 3, 9)),
            (nn.Conv2d(3, 4, 3, stride=2), (0, 1, 0, 1), (2, 3, 8, 9)),
            (nn.Conv2d(3, 4, 3, padding=1), (2, 0, 0, 3), (1, 3, 8, 9)),
            (nn.Conv2d(3, 4, 1), (0, 2), (1, 3, 5, 6)),
            (nn.Conv2d(4, 4, 5, stride=2, groups=4), (1, 2, 1, 2), (1, 4, 8, 8)),
            (nn.Conv2d(8, 12, 3, groups=4), (1, 1, 0, 1), (2, 8, 5, 6)),
            (nn.Conv3d(3, 4, (1, 3, 2)), (1, 0, 0, 0, 2, 1), (1, 3, 4, 5, 3)),
            (nn.Conv2d(3, 40, 3), (1, 2, 2, 1, 0, 0, 0, 0), (1, 3, 9, 9)),
        ],
    )
    def test_zeros_in_front_are_padding_of_its_own(
        self, conv: nn.Module, pads: tuple[int, ...], sizes: tuple[int, ...]
    ) -> None:
        after = run(nn.Sequential(_Pad(pads), conv).eval(), (torch.randn(sizes),), pack_conv)
        folded = len(pads) <= 2 * (len(sizes) - 2)
        assert operators(after) == [*([] if folded else ["aten.pad.default"]), "aotpack.packed_conv.default"]

    def test_a_padding_that_others_read_too(self) -> None:
        conv = nn.Conv2d(3, 4, 3, stride=2).eval()

        def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            padded = F.pad(x, (0, 1, 0, 1))
            return F.conv2d(padded, w, stride=2), padded.relu()

        after = run(Weights(function, conv.weight.detach()), (torch.randn(1, 3, 8, 8),), pack_conv)
        (call,) = calls(after, ops.packed_conv)
        (x,) = after.graph.find_nodes(op="placeholder")
        assert call.args[0] is x

    @pytest.mark.parametrize(
        ("pads", "mode", "value"),
        [
            ((0, 1, 0, 1), "constant", 1.0),
            ((0, -1, 0, 1), "constant", 0.0),
            ((0, 1, 0, 1), "replicate", None),
            ((0, 0, 0, 1, 0, 1), "constant", 0.0),
        ],
    )
    def test_other_paddings_stay(self, pads: tuple[int, ...], mode: str, value: float | None) -> None:
        channels = 4 if len(pads) == 6 else 3
        model = nn.Sequential(_Pad(pads, mode, value), nn.Conv2d(channels, 4, 3)).eval()
        after = run(model, (torch.randn(1, 3, 7, 8),), pack_conv)
        assert len(operators(after)) > 1

    def test_a_transposed_convolution_keeps_the_padding_in_front(self) -> None:
        model = nn.Sequential(_Pad((0, 1, 0, 1)), nn.ConvTranspose2d(3, 4, 3)).eval()
        after = run(model, (torch.randn(1, 3, 5, 6),), pack_conv)
        assert operators(after) == ["aten.pad.default", "aotpack.packed_conv.default"]

    def test_uneven_padding_of_dynamic_sizes(self) -> None:
        model = nn.Sequential(_Pad((0, 1, 2, 1)), nn.Conv2d(3, 4, 3, stride=2)).eval()
        shapes = {"input": {0: Dim("n"), 2: Dim("h"), 3: Dim("w")}}
        x, other = torch.randn(2, 3, 5, 6), torch.randn(3, 3, 4, 9)
        after = run(model, (x,), pack_conv, dynamic_shapes=shapes, other_args=(other,))
        assert operators(after)[-1] == "aotpack.packed_conv.default"
        assert "aten.pad.default" not in operators(after)

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
