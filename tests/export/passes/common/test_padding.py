"""The pass that folds padding into convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export.passes.common.padding import fold_padding
from tests.export.pass_checks import calls, count, operators, run

aten = torch.ops.aten


class Around(nn.Module):
    """`function(x, inner)`."""

    def __init__(self, inner: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.inner)


class TestPadding:
    @pytest.mark.parametrize(
        ("conv", "sizes", "pad", "padding"),
        [
            (nn.Conv2d(3, 4, 3), (2, 3, 5, 6), (1, 1, 2, 2), [2, 1]),
            (nn.Conv2d(3, 4, 3, padding=(1, 2)), (2, 3, 5, 6), (1, 1), [1, 3]),
            (nn.Conv2d(3, 4, 1, stride=2), (3, 5, 6), (0, 0, 0, 0), [0, 0]),
            (nn.Conv1d(3, 4, 3), (2, 3, 5), (2, 2), [2]),
            (nn.Conv3d(2, 4, 2), (1, 2, 3, 4, 5), (3, 3, 2, 2, 1, 1), [1, 2, 3]),
        ],
    )
    def test_even_padding_with_zeros_is_the_convolutions(
        self, conv: nn.Module, sizes: Any, pad: Any, padding: list[int]
    ) -> None:
        after = run(Around(conv, lambda x, c: c(F.pad(x, pad))).eval(), (torch.randn(sizes),), fold_padding)
        assert len(operators(after)) == 1
        (call,) = (node for node in after.graph.nodes if node.op == "call_function")
        assert list(call.args[4]) == padding

    @pytest.mark.parametrize(
        "pad",
        [
            lambda x: F.pad(x, (0, 1, 0, 1)),
            lambda x: F.pad(x, (1, 1), value=1.0),
            lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
            lambda x: F.pad(x, (-1, -1)),
            lambda x: F.pad(x[:, :1], (0, 0, 0, 0, 1, 1)),
        ],
        ids=["uneven", "value", "mode", "cropped", "channels"],
    )
    def test_others_stay(self, pad: Callable[..., Any]) -> None:
        model = Around(nn.Conv2d(3, 4, 3), lambda x, c: c(pad(x))).eval()
        after = run(model, (torch.randn(2, 3, 5, 6),), fold_padding)
        assert not after.reports

    def test_another_reader_keeps_the_padded_value(self) -> None:
        model = Around(nn.Conv2d(3, 4, 3), lambda x, c: (c(y := F.pad(x, (1, 1, 1, 1))), y.sum()))
        after = run(model.eval(), (torch.randn(2, 3, 5, 6),), fold_padding)
        assert count(after, aten.pad.default, aten.constant_pad_nd.default) == 1
        assert calls(after, aten.conv2d.default)[0].args[0].op == "placeholder"
