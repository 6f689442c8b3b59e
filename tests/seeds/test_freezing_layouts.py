"""Freezing, scenario by scenario: results and weights whose layout the passes choose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from aotpack.export import ops
from aotpack.export.ops.weight_packing import pack_conv as packed_layout
from tests.seeds.freezing import Build, ConvBn, Trace, aten, calls, frozen
from tests.support.building import assert_close, check, in_double, manifest_of

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_with_as_strided(build: Build, groups: int) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kv = nn.Conv2d(256, 384, 1, bias=False, groups=groups)

        def forward(self, x: Tensor) -> Tensor:
            padded = aten.constant_pad_nd.default(self.kv(x), [2, 2, 2, 2], 0.0)
            windows = aten.as_strided.default(padded, [8, 384, 2, 20, 12], [153600, 400, 160, 1, 20])
            windows = aten.as_strided.default(windows, [8, 384, 2, 2, 12, 12], [153600, 400, 160, 8, 20, 1])
            return aten.clone.default(windows, memory_format=torch.contiguous_format)

    eager, args = Strided().eval(), (torch.randn(8, 256, 16, 16),)
    check(build(eager, args), eager, args)


def test_cpp_wrapper(build: Build) -> None:
    eager, args = ConvBn(3, 32, kernel_size=3, stride=2).eval(), (torch.rand(3, 3, 32, 32),)
    model = build(eager, args)
    for _ in range(5):
        args = (torch.rand(3, 3, 32, 32),)
        check(model, eager, args)


def test_conv_layout_convert_with_view(build: Build) -> None:
    class Flattened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 128, 3, padding=1, bias=False)
            self.bn = nn.BatchNorm2d(3)
            self.bn.running_mean.uniform_(-1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.flatten(self.conv(self.bn(x)), 1)

    eager, args = Flattened().eval(), (torch.rand(2, 3, 5, 5),)
    check(build(eager, args), eager, args)


def test_conv_weight_layout_convert(traced: Trace) -> None:
    eager, args = nn.Conv2d(3, 128, 3, padding=1, bias=False).eval(), (torch.rand(2, 3, 5, 5),)
    wanted = packed_layout(eager.weight.detach(), 1, False)
    program = frozen(eager, args)
    (conv,) = calls(program, ops.packed_conv)
    weight = conv.args[1]
    assert isinstance(weight, torch.fx.Node)
    assert weight.meta["val"].shape == wanted.shape
    assert torch.equal(program.value(str(weight.target)), wanted)
    model, trace = traced(eager, args)
    (constant,) = manifest_of(model.path).constants
    assert (constant.shape, constant.stride) == (tuple(wanted.shape), wanted.stride())
    check(model, eager, args)
    convolutions = [line for line in trace() if line["op"] == "packed_conv"]
    assert convolutions
    assert not any(t["relaid"] for line in convolutions for t in line["tensors"] if t["role"] == "weight")


def test_unequal_bias_horizontal_addmm_fusion(build: Build) -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.b1 = torch.ones(3, 3), torch.zeros(3)
            self.w2, self.b2 = torch.tensor([[0.0, 0.0, 1.0]] * 3), torch.tensor([[-1.0, -1.0, -1.0]])
            self.w3, self.b3 = torch.eye(3), torch.tensor([1.0, 2.0, 3.0])

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return F.linear(x, self.w1, self.b1), F.linear(x, self.w2, self.b2), F.linear(x, self.w3, self.b3)

    eager, x = Three().eval(), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    model = build(eager, (x,))
    assert_close(model(x), in_double(eager(x)), 1e-6)
    other = torch.randn(2, 3)
    assert_close(model(other), in_double(eager(other)), 1e-6)


def test_redundant_clone_for_layout_convert(build: Build) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 128, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x + 1
            return self.conv(x), y

    eager, args = Both().eval(), (torch.rand(2, 3, 5, 5),)
    program = frozen(eager, args)
    copies = calls(program, ops.to_layout, aten.clone.default, aten.contiguous.default)
    returned: Any = program.graph.output_node().args[0]
    assert returned[1] not in copies, "x + 1 has its layout already"
    assert sum(node in copies for node in returned) <= 1
    model = build(eager, args)
    results = model(*args)
    assert all(value.is_contiguous() for value in results)
    check(model, eager, args)
