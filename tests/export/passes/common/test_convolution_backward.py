"""The pass that rewrites the backward of convolutions: every gradient against eager's in double."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import aot_export, ops
from aotpack.export.ir.program import Program
from aotpack.export.passes.common.convolution_backward import lower_convolution_backward
from aotpack.export.passes.common.convolution_weight_gradient import lower_convolution_weight_gradient
from aotpack.export.passes.cpu.pack_conv import pack_conv
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import calls, count
from tests.support.building import Build, check_joint, in_double

aten = torch.ops.aten

SIZES = {1: (13,), 2: (9, 11), 3: (5, 6, 7)}
PLAIN: list[dict[str, Any]] = [
    {"kernel_size": 1},
    {"kernel_size": 3},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 3, "dilation": 2},
    {"kernel_size": 1, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "groups": 2, "bias": False},
    {"kernel_size": 3, "groups": 4, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 4},
    {"kernel_size": 2, "padding": 3, "groups": 4},  # padding beyond the kernel's reach
]
TRANSPOSED: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    {"kernel_size": 2, "dilation": 3, "output_padding": 2},  # output padding of more than the stride
    {"kernel_size": 3, "stride": 2, "groups": 2},
    {"kernel_size": 3, "stride": 2, "groups": 4, "bias": False},
]


class Weighed(nn.Module):
    """A loss whose gradient by the convolution's result is not uniform."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return (y * (y + 0.5)).sum()


def convolution(spatial: int, transposed: bool, options: dict[str, Any]) -> nn.Module:
    names = {
        False: (nn.Conv1d, nn.Conv2d, nn.Conv3d),
        True: (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    }
    depthwise = options.get("groups") == 4
    layer: nn.Module = names[transposed][spatial - 1](4, 4 if depthwise else 8, **options)
    return layer


def check(program: Program, model: nn.Module, x: Tensor, tolerance: float = 1e-5) -> None:
    """The graph's loss and gradients are eager's."""
    double = copy.deepcopy(model).double()
    passed = in_double(x.detach()).requires_grad_()
    loss = double(passed)
    gradients = torch.autograd.grad(loss, [*double.parameters(), passed])
    got = program.runnable()(x.detach())
    for value, wanted in zip(got, [loss.detach(), *gradients], strict=True):
        assert value.shape == wanted.shape
        error = (value.double() - wanted).abs().max() / wanted.abs().max()
        assert error <= tolerance


# A dynamic batch is a part of "all"; alone, sizes of one and the same kind of convolution show it. Sizes of one dim are
# dynamic throughout, and of three dims for kinds that differ most.
CASES = [
    (spatial, transposed, options, dynamic)
    for transposed, kinds in ((False, PLAIN), (True, TRANSPOSED))
    for spatial, ways in ((1, ("all",)), (2, ("static", "batch", "all")), (3, ("static", "all")))
    for number, options in enumerate(kinds)
    for dynamic in ways
    if (spatial, dynamic) != (3, "all") or number in ((1, 4) if transposed else (3, 5, 7))
]


@pytest.mark.parametrize(("spatial", "transposed", "options", "dynamic"), CASES)
def test_gradients(spatial: int, transposed: bool, options: dict[str, Any], dynamic: str) -> None:
    torch.manual_seed(0)
    model = Weighed(convolution(spatial, transposed, options))
    sizes = SIZES[spatial]
    x = torch.randn(3, 4, *sizes, requires_grad=True)
    shapes: dict[int, Dim] = {}
    if dynamic != "static":
        shapes[0] = Dim("batch", min=1, max=64)
    if dynamic == "all":
        # Sizes from which every kernel here fits more than once.
        shapes |= {2 + i: Dim(f"size{i}", min=2 if transposed else 6, max=50) for i in range(spatial)}
        x = torch.randn(3, 4, *(max(size, 6) for size in sizes), requires_grad=True)
    program = aot_export(model, (x,), mode="joint", dynamic_shapes={"x": shapes} if shapes else None)
    program = run_passes(program, (lower_convolution_backward, lower_convolution_weight_gradient))
    assert count(program, aten.convolution_backward.default) == 0
    check(program, model, x)
    if dynamic == "batch":
        check(program, model, torch.randn(5, *x.shape[1:]))
    if dynamic == "all":
        check(program, model, torch.randn(2, 4, *(size + 3 for size in x.shape[2:])))


def test_only_what_is_asked_for_is_computed() -> None:
    model = Weighed(nn.Conv2d(4, 8, 3))
    model.conv.weight.requires_grad_(False)
    program = aot_export(model, (torch.randn(2, 4, 6, 6),), mode="joint")
    program = run_passes(program, (lower_convolution_backward, lower_convolution_weight_gradient))
    # The bias alone: one convolution, and no product.
    assert count(program, aten.convolution.default) == 1
    assert count(program, aten.mm.default) == 0
    (report,) = program.reports
    assert [change.note for change in report.changes] == ["gradient of the bias"]
    assert report.changes[0].layer == "conv"


def test_weights_of_the_backward_are_packed() -> None:
    """The gradient of the input is a convolution with a constant weight, of which a depthwise one is reversed."""
    torch.manual_seed(1)
    model = Weighed(nn.Sequential(nn.Conv2d(4, 8, 3, stride=2), nn.Conv2d(8, 8, 3, stride=2, groups=8)))
    x = torch.randn(2, 4, 17, 15, requires_grad=True)
    program = run_passes(
        aot_export(model, (x,), mode="joint"),
        (lower_convolution_backward, lower_convolution_weight_gradient, pack_conv),
    )
    assert count(program, aten.convolution.default) == 0
    packed = calls(program, ops.packed_conv)
    assert len(packed) == 4
    depthwise, plain = packed[2:]
    assert (depthwise.args[9], plain.args[9]) == (False, True)  # transposed
    check(program, model, x)


def test_programs_without_a_backward_are_left_alone() -> None:
    program = aot_export(nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 5, 5),))
    assert lower_convolution_backward(program) is program


def test_archives(build: Build) -> None:
    """All kinds at once, through the kernels."""
    torch.manual_seed(2)
    model = Weighed(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(8, 8, 5, groups=8, padding=2, bias=False),
            nn.Conv2d(8, 8, 3, stride=2, groups=8),
            nn.Tanh(),
            nn.Conv2d(8, 12, 3, groups=2, dilation=2, padding=2),
            nn.ConvTranspose2d(12, 6, 3, stride=2, output_padding=1),
            nn.Tanh(),
            nn.ConvTranspose2d(6, 6, 2, stride=2, groups=6),
        )
    )
    batch = Dim("batch", min=1, max=32)
    x = torch.randn(2, 3, 21, 18, requires_grad=True)
    archive = build(model, (x,), mode="joint", dynamic_shapes={"x": {0: batch}})
    check_joint(archive, model, (x,), (torch.randn(5, 3, 21, 18, requires_grad=True),))
