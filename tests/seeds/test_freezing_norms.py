"""Freezing, scenario by scenario: batch norms and scales that are folded into convolutions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import ops
from tests.seeds.freezing import (
    NORMS,
    TOLERANCE,
    Build,
    ConvBn,
    ConvFunctionalBn,
    Twice,
    calls,
    frozen,
    norm_constants,
    trained,
)
from tests.support.building import assert_close, check, manifest_of

pytestmark = pytest.mark.torch


def test_conv_multiple_uses(build: Build) -> None:
    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)
            self.bn = nn.BatchNorm2d(1)
            nn.init.normal_(self.bn.weight)
            self.bn.running_mean.fill_(0.3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.conv(x) + self.bn(self.conv(y))

    eager, args = Uses().eval(), (torch.rand(64, 1, 32, 32), torch.rand(64, 1, 32, 32))
    assert not calls(frozen(eager, args), *NORMS)
    check(build(eager, args), eager, args)


def test_unfolded_bn(build: Build) -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn = nn.BatchNorm2d(32, eps=1e-3)
            self.bn.running_mean.uniform_(-1, 1)
            self.bn.running_var.uniform_(0.5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.bn(x) + 10

    eager, args = Norm().eval(), (torch.rand(3, 32, 15, 15),)
    check(build(eager, args), eager, args, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_folded_conv_bn(build: Build, bias: bool, dtype: torch.dtype) -> None:
    eager = ConvBn(3, 32, bias=bias, kernel_size=3, stride=2).eval().to(dtype)
    args = (torch.rand(3, 3, 32, 32).to(dtype),)
    program = frozen(eager, args)
    (conv,) = calls(program, ops.packed_conv)
    assert not calls(program, *NORMS)
    assert len(program.graph.find_nodes(op="get_attr")) == 2, "one weight and one bias"
    assert conv.meta["val"].dtype == dtype
    model = build(eager, args)
    assert [str(c.dtype) for c in manifest_of(model.path).constants] == [str(dtype).removeprefix("torch.")] * 2
    check(model, eager, args, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_folded_conv_bn_of_mixed_dtypes(build: Build, dtype: torch.dtype) -> None:
    eager = ConvBn(3, 32, kernel_size=3).eval()
    eager.conv.to(dtype)
    args = (torch.rand(2, 3, 16, 16).to(dtype),)
    assert not calls(frozen(eager, args), *NORMS)
    model = build(eager, args)
    check(model, eager, args, tolerance=TOLERANCE[dtype])


def test_folded_conv_bn_with_module_sharing(build: Build) -> None:
    eager = Twice(trained(ConvBn(32, 32, bias=True, kernel_size=3, stride=2))).eval()
    args = (torch.rand(3, 32, 32, 32),)
    program = frozen(eager, args)
    assert len(calls(program, ops.packed_conv)) == 2
    assert not calls(program, *NORMS)
    model = build(eager, args)
    assert len(manifest_of(model.path).constants) == 2, "folded once for both calls"
    check(model, eager, args)


def test_folded_conv_functional_bn_with_module_sharing(build: Build) -> None:
    eager, args = Twice(ConvFunctionalBn(32, 32, kernel_size=3, stride=2)).eval(), (torch.rand(3, 32, 32, 32),)
    assert not calls(frozen(eager, args), *NORMS)
    reference = copy.deepcopy(eager)
    reference.part.double()
    with torch.no_grad():
        expected = reference(args[0].double())
    model = build(eager, args)
    assert not norm_constants(model)
    assert_close(model(*args), expected, 1e-5)


def test_conv_bn_with_multi_bn_share_conv(build: Build) -> None:
    eager = trained(ConvBn(32, 32, bias=True, norms=2, kernel_size=3, stride=2))
    args = (torch.rand(3, 32, 32, 32),)
    assert not calls(frozen(eager, args), *NORMS)
    model = build(eager, args)
    assert not norm_constants(model)
    check(model, eager, args)


def test_conv_functional_bn_with_multi_bn_share_conv(build: Build) -> None:
    eager, args = ConvFunctionalBn(32, 32, norms=2, kernel_size=3, stride=2).eval(), (torch.rand(3, 32, 32, 32),)
    assert not calls(frozen(eager, args), *NORMS)
    with torch.no_grad():
        expected = copy.deepcopy(eager).double()(args[0].double())
    assert_close(build(eager, args)(*args), expected, 1e-5)


def test_dont_change_dtype_folding(build: Build) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 3, stride=2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) * torch.full([1], 2.0)

    eager, args = Scaled().eval().bfloat16(), (torch.rand(3, 3, 32, 32).bfloat16(),)
    with torch.no_grad():
        wanted = eager(*args)
    result = build(eager, args)(*args)
    assert result.dtype == wanted.dtype == torch.float32
    assert_close(result, wanted.double(), 1e-2)
