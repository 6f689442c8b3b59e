"""The pass that calls the kernels of convolutions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export.ops.cuda import conv
from aotpack.export.passes.cuda.fuse_activation import fuse_activation
from aotpack.export.passes.cuda.keep_output_layout import keep_output_layout
from aotpack.export.passes.cuda.use_conv import use_conv
from tests.export.pass_checks import calls, count, run

aten = torch.ops.aten
r = torch.randn


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Conv1d(3, 4, 3, padding=1), r(2, 3, 9)),
        (nn.Conv2d(3, 4, 3, stride=2), r(2, 3, 9, 8)),
        (nn.Conv2d(3, 4, 3), r(3, 9, 8)),
        (nn.Conv2d(4, 4, (3, 2), padding="same", dilation=2, groups=2, bias=False), r(2, 4, 9, 8)),
        (nn.Conv2d(4, 8, 3, groups=4), r(2, 4, 9, 8)),
        (nn.Conv3d(2, 3, 2), r(2, 2, 4, 5, 6)),
        (nn.ConvTranspose1d(3, 4, 3, stride=2), r(2, 3, 9)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), r(2, 4, 5, 6)),
    ],
    ids=["1-d", "2-d", "no batch", "same", "depthwise", "3-d", "transposed 1-d", "transposed 2-d"],
)
def test_convolutions_are_sent_to_the_kernel(model: nn.Module, x: Tensor) -> None:
    after = run(model.eval(), (x,), use_conv, keep_output_layout)
    (call,) = calls(after, conv.OPERATOR)
    # Constant weights are laid out with the channels that are summed over innermost.
    weight: Any = call.args[1]
    summed = 0 if call.args[6] else 1
    assert weight.meta["val"].stride(summed) == 1 or weight.meta["val"].shape[summed] == 1
    assert after.graph_module(x)[0].stride() == model(x).stride()


def test_weights_that_are_inputs() -> None:
    after = run(lambda x, w: F.conv2d(x, w, padding=1), (r(2, 3, 5, 5), r(4, 3, 3, 3)), use_conv)
    assert len(calls(after, conv.OPERATOR)) == 1


def test_a_weight_that_is_used_twice_is_laid_out_once() -> None:
    layer = nn.Conv2d(3, 3, 3, padding=1).eval()
    first, second = calls(run(nn.Sequential(layer, layer), (r(1, 3, 5, 5),), use_conv), conv.OPERATOR)
    assert first.args[1] is second.args[1]


def test_activations_are_fused() -> None:
    after = run(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), (r(1, 3, 5, 5),), use_conv, fuse_activation)
    assert calls(after, conv.OPERATOR)[0].args[9] == 1
    assert count(after, aten.relu.default) == 0


def test_other_dtypes_stay() -> None:
    x, w = torch.ones(1, 2, 5, 5).int(), torch.ones(3, 2, 2, 2).int()
    assert not calls(run(F.conv2d, (x, w), use_conv), conv.OPERATOR)
