"""Operators in a joint graph: which one of the forward a kernel derives, and those that are written by users.

The scenarios of the third seed document, "AOTAutograd", that are about operators; the others are in test_joint.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from aotpack.archive import ArchiveReader, read_manifest
from aotpack.archive.description import read_description
from aotpack.cli.app import app
from aotpack.errors import CaptureError
from aotpack.export import Device, Partitioning, Program, aot_export, partition
from aotpack.export.ir.rewriter import layer_of, operator_name
from tests.support.building import assert_close
from tests.support.torchless import RemoteModel

pytestmark = pytest.mark.torch

Build = Callable[..., RemoteModel]


def wanted(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 1, padding="same")
        self.bn1 = nn.BatchNorm2d(4)
        self.relu1 = nn.ReLU()
        self.fc1 = nn.Linear(64, 1)
        self.loss_fn = nn.L1Loss()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x))) + x
        loss: Tensor = self.loss_fn(self.fc1(torch.flatten(y)), target)
        return loss


def test_eager_sequence_nr_and_the_table_of_aot() -> None:
    """What is computed in the backward names the operator of the forward, and has its number and its module."""
    program = aot_export(Sequence(), (torch.rand(1, 4, 4, 4), torch.rand(1)), mode="joint")
    calls = [node for node in program.graph.nodes if node.op == "call_function" and "sequence" in node.meta]
    derived = {operator_name(node): node for node in calls if "backward_of" in node.meta}
    recorded = {node.meta["sequence"]: node for node in reversed(calls)}
    for operator, source, module in (
        ("aten.convolution_backward", "aten.convolution", "conv1"),
        ("aten.native_batch_norm_backward", "aten._native_batch_norm_legit_functional", "bn1"),
        ("aten.threshold_backward", "aten.relu", "relu1"),
        ("aten.sgn", "aten.abs", "loss_fn"),
    ):
        node = derived[operator]
        forward = recorded[node.meta["sequence"]]
        assert node.meta["backward_of"] == source == operator_name(forward)
        assert layer_of(node) == module == layer_of(forward)
        assert "backward_of" not in forward.meta
    numbers = [node.meta["sequence"] for node in calls if "backward_of" in node.meta]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] == 0


def test_kernels_of_a_backward_name_what_they_derive(built: Callable[..., Path]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(4, 4)
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.fc1(x)).mean()

    path = built(Model(), (torch.randn(2, 4),), mode="joint")
    with ArchiveReader(path) as reader:
        description = read_description(reader)
        (implementation,) = reader.manifest.entries[0].variants[0].implementations
    assert description is not None
    described = description["joint"]["default"]
    (step,) = described.targets[implementation.target]
    found = [
        {(described.nodes[index].backward_of, described.nodes[index].module) for index in nodes}
        for kernel, nodes in zip(implementation.steps[0].module.kernels, step.kernels, strict=True)
        if "aten.threshold_backward" in kernel.ops or "aten.mm" in kernel.ops
    ]
    assert {("aten.relu", "act"), ("aten.addmm", "fc1")} <= set().union(*found)
    assert all(any(source for source, _ in nodes) for nodes in found)
    text = CliRunner().invoke(app, ["inspect", "--kernels", str(path)], env={"COLUMNS": "400"}).output
    assert "aten.relu in act" in text
    assert "aten.addmm in fc1" in text


def test_split_with_sizes_aot_autograd_cleans_up_traceback_meta(build: Build) -> None:
    """The parts of a split, of which each has a gradient of its own, and no part the number of another."""

    def model(x: Tensor) -> Tensor:
        first, second, third = torch.ops.aten.split_with_sizes(x, [7, 16, 9])
        return first.sum() + second.square().sum() + third.exp().sum()

    x = wanted(32)
    program = aot_export(model, (x,), mode="joint")
    derived = [node for node in program.graph.nodes if "backward_of" in node.meta]
    sources = {node.meta["sequence"]: node.meta["backward_of"] for node in derived}
    # The backward of an addition computes nothing but, of the last one, the gradient of the loss itself.
    operators = ["aten.add", "aten.exp", "aten.pow", "aten.split_with_sizes", *["aten.sum"] * 3]
    assert sorted(sources.values()) == operators
    (gradient,) = torch.autograd.grad(model(x), x)
    assert_close(build(model, (x,), mode="joint")(x.detach())["input_gradients"]["x"], gradient)


def test_data_ptr_access_fails_in_forward(library: torch.library.Library) -> None:
    library.define("pointed(Tensor x) -> Tensor")

    def pointed(x: Tensor) -> Tensor:
        return x * (2 if x.data_ptr() else 3)

    library.impl("pointed", pointed, "CompositeImplicitAutograd")
    operator = torch.ops.aotpack_test_joint.pointed
    for model in (pointed, lambda x: operator(x), lambda x: operator(x.clone())):
        with pytest.raises(CaptureError, match=r"Cannot access data pointer[^@]*x\.data_ptr\(\)"):
            aot_export(model, (torch.randn(3),))


def test_data_ptr_access_fails_in_backward() -> None:
    class Pointed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * (2 if gradients[0].data_ptr() else 3)

    def of_function(x: Tensor) -> Tensor:
        result: Tensor = Pointed.apply(x)
        return result.sum()

    with pytest.raises(CaptureError, match=r"Pointed is a torch\.autograd\.Function, whose backward"):
        aot_export(of_function, (wanted(3),), mode="joint")

    @torch.library.custom_op("aotpack_test_joint::copied", mutates_args=())
    def copied(x: Tensor) -> Tensor:
        return x.clone()

    copied.register_fake(torch.empty_like)
    copied.register_autograd(lambda ctx, gradient: gradient * (2 if gradient.data_ptr() else 3))
    with pytest.raises(CaptureError, match="cannot trace the backward: RuntimeError: Cannot access data pointer"):
        aot_export(lambda x: copied(x).sum(), (wanted(3),), mode="joint")


def test_data_ptr_access_copy(build: Build) -> None:
    """A shallow copy is the same memory, without the history of the tensor."""

    def model(x: Tensor, y: Tensor) -> Tensor:
        z = copy.copy(y)
        z.add_(1)
        return (x * y + copy.copy(x)).sum()

    x, y = wanted(3), torch.randn(3)
    archive = build(model, (x, y.clone()), mode="joint")
    passed, expected = y.clone(), y.clone()
    loss = model(x, expected)
    # The copy of an input has no history: its share of the gradient is not there.
    result = archive(x.detach(), passed)
    assert_close((result["outputs"], passed), (loss.detach(), expected))
    assert_close(result["input_gradients"]["x"], expected)


def maybe_dupe_op(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x + 1, x + 2
    return (y, y) if x.numel() < 5 else (y, z)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("aotpack_test_joint", "FRAGMENT") as scoped:
        yield scoped


@pytest.mark.parametrize("size", [4, 6])
def test_multiple_aot_autograd_calls_dupe_args(build: Build, library: torch.library.Library, size: int) -> None:
    """An operator that returns one tensor twice for small inputs; another part of a split graph writes to it."""
    library.define("maybe_dupe_op(Tensor a) -> (Tensor, Tensor)")
    for key in ("CPU", "Meta"):
        library.impl("maybe_dupe_op", maybe_dupe_op, key)

    def model(a: Tensor) -> Tensor:
        b, c = torch.ops.aotpack_test_joint.maybe_dupe_op(a)
        return b.mul_(c)

    def split(program: Program) -> Partitioning:
        devices = [Device("first", 1 << 20), Device("second", 1 << 20)]
        return partition(program, devices, "mapping", mapping={"": "first", "mul_": "second"})

    archive = build(model, (torch.ones(size),), partitioning=split)
    (implementation,) = read_manifest(Path(archive.path)).entries[0].variants[0].implementations
    assert len(implementation.steps) == 2
    x = torch.randn(size)
    assert_close(archive(x), model(x))
