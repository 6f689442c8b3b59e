"""Joint graphs: a loss, its gradients, and what a call writes to its inputs are eager's.

The scenarios of the third seed document, "AOTAutograd". Where a scenario compiles, an archive is built and called in a
process without torch. Inputs that share memory are in test_joint_aliases.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.archive.description import read_description
from aotpack.cli.app import app
from aotpack.errors import CaptureError, EntryNotFoundError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.building import assert_close, check_joint
from tests.support.torchless import RemoteModel

pytestmark = pytest.mark.torch

Build = Callable[..., RemoteModel]


def wanted(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


class Bidirectional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.lstm(x.permute(1, 0, 2))[0]
        return output.square().sum()


def test_lstm(build: Build) -> None:
    model, x = Bidirectional(), wanted(2, 2, 4)
    check_joint(build(model, (x,), mode="joint"), model, (x,))  # type: ignore[arg-type]


class Counted(nn.Module):
    """Writes to an input, a slice of it and a view of it, beside a loss that reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        seen.add_(1)
        seen[:, 0].mul_(2)
        seen.t()[1].sub_(3)
        return (x @ self.weight * seen).sum()


def test_mutation(build: Build) -> None:
    model, x, seen = Counted(), wanted(3, 3), torch.randn(3, 3)
    archive = build(model, (x, seen.clone()), mode="joint")
    passed, expected = seen.clone(), seen.clone()
    result = archive(x.detach(), passed)
    loss = model(x, expected)
    loss.backward()
    assert_close(passed, expected)
    assert_close(result["outputs"], loss.detach())
    assert_close(result["gradients"]["weight"], model.weight.grad)
    assert_close(result["input_gradients"]["x"], x.grad)


def test_mutation1_of_slices_and_views(build: Build) -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        x[1:].add_(y[0])
        y.view(9)[::2].mul_(2)
        return x + y

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    archive = build(model, (x.clone(), y.clone()))
    passed, expected = (x.clone(), y.clone()), (x.clone(), y.clone())
    assert_close(archive(*passed), model(*expected))
    assert_close(passed, expected)


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


def test_eager_sequence_nr_and_the_table_of_aot(built: Callable[..., Path]) -> None:
    """What is computed in the backward names the operator of the forward, and has its number and its module."""
    path = built(Sequence(), (torch.rand(1, 4, 4, 4), torch.rand(1)), mode="joint")
    with ArchiveReader(path) as reader:
        description = read_description(reader)
        (implementation,) = reader.manifest.entries[0].variants[0].implementations
    assert description is not None
    described = description["joint"]["default"]
    derived = {node.operator: node for node in described.nodes if node.backward_of}
    recorded = {node.sequence: node for node in reversed(described.nodes) if node.kind == "call"}
    for operator, source, module in (
        ("aten.convolution_backward", "aten.convolution", "conv1"),
        ("aten.native_batch_norm_backward", "aten._native_batch_norm_legit_functional", "bn1"),
        ("aten.threshold_backward", "aten.relu", "relu1"),
        ("aten.sgn", "aten.abs", "loss_fn"),
    ):
        node = derived[operator]
        assert (node.backward_of, node.module) == (source, module)
        assert node.sequence is not None
        forward = recorded[node.sequence]
        assert (forward.operator, forward.module, forward.backward_of) == (source, module, "")
    numbers = [node.sequence for node in described.nodes if node.sequence is not None and node.backward_of]
    assert numbers[0] > numbers[-1] == 0
    kernels = implementation.steps[0].module.kernels
    (step,) = described.targets[implementation.target]
    assert all(
        any(described.nodes[index].backward_of for index in nodes)
        for kernel, nodes in zip(kernels, step.kernels, strict=True)
        if any("backward" in operator for operator in kernel.ops)
    )
    text = CliRunner().invoke(app, ["inspect", "--kernels", str(path)], env={"COLUMNS": "400"}).output
    assert "aten.relu in relu1" in text
    assert "aten.convolution in conv1" in text


def test_split_with_sizes_aot_autograd_cleans_up_traceback_meta(build: Build) -> None:
    """The parts of a split, of which each has a gradient of its own, and no part the number of another."""

    def model(x: Tensor) -> Tensor:
        first, second, third = torch.ops.aten.split_with_sizes(x, [7, 16, 9])
        return first.sum() + second.square().sum() + third.exp().sum()

    x = wanted(32)
    program = aot_export(model, (x,), mode="joint")
    derived = [node for node in program.graph.nodes if "backward_of" in node.meta]
    sources = {node.meta["sequence"]: node.meta["backward_of"] for node in derived}
    # The backward of an addition computes nothing.
    assert sorted(sources.values()) == ["aten.exp", "aten.pow", "aten.split_with_sizes", *["aten.sum"] * 3]
    (gradient,) = torch.autograd.grad(model(x), x)
    assert_close(build(model, (x,), mode="joint")(x.detach())["input_gradients"]["x"], gradient)


def _update(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.add_(1)
    return x.square().sum()


def test_negative_testing_mutation_of_a_leaf(build: Build) -> None:
    passed, expected = torch.ones(3), torch.ones(3)
    assert_close(build(_update, (torch.ones(3),))(passed), _update(expected))
    assert_close(passed, expected)


def test_negative_testing_mutation_of_a_leaf_whose_gradient_is_wanted() -> None:
    with pytest.raises(CaptureError, match="writes to 'x', whose gradient is wanted"):
        aot_export(_update, (wanted(3),), mode="joint")


def _branch(x: Tensor, y: Tensor) -> Tensor:
    if y.sum() > 0:
        return (x * 2).sum()
    return (x - 1).sum()


def test_call_fn_with_non_const_inputs_aot_unsafe_control_flow(build: Build) -> None:
    with pytest.raises(CaptureError, match=r"in _branch: if y.sum\(\) > 0") as error:
        aot_export(_branch, (wanted(3), torch.ones(3)), mode="joint")
    assert "torch.where" in str(error.value.hint)

    def chosen(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(y.sum() > 0, x * 2, x - 1).sum()

    archive = build(chosen, (wanted(3), torch.ones(3)), mode="joint")
    for sign, slope in ((1.0, 2.0), (-1.0, 1.0)):
        gradient = archive(torch.ones(3), sign * torch.ones(3))["input_gradients"]["x"]
        assert_close(gradient, torch.full((3,), slope))


def _product(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


@pytest.mark.parametrize("both", [False, True])
def test_requires_grad_is_that_of_the_example(both: bool) -> None:
    program = aot_export(_product, (wanted(3), torch.ones(3).requires_grad_(both)), mode="joint")
    names = [spec.name for spec in program.signature.outputs if "input_gradients" in spec.name]
    assert names == ["output.input_gradients.x", "output.input_gradients.y"][: 1 + both]


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x @ self.weight + y).square().sum()


SETS: tuple[tuple[str, ...], ...] = (("y", "x"), ("x",), ())


def test_requires_grad_fake_via_dynamo_recompiles(tmp_path: Path, cache_dir: Path) -> None:
    """An entry for each set of inputs whose gradients are wanted, in one archive, over the same weights."""
    model, example = Weighted(), (torch.randn(2, 3), torch.randn(2, 3))
    program = aot_export(
        model, example, mode="joint", dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}}, input_gradients=SETS
    )
    path = tmp_path / "sets.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path)
    assert [entry.name for entry in archive.manifest.entries] == ["joint[x,y]", "joint[x]", "joint[]"]
    # The weight for the product and for its backward, of all entries.
    assert [constant.sources for constant in archive.manifest.constants] == [("weight",)] * 2
    for wanted_names in SETS:
        entry = archive.entry("joint", input_gradients=wanted_names[::-1])
        for rows in (1, 3):
            x, y = (torch.randn(rows, 3, requires_grad=name in wanted_names) for name in "xy")
            loss = model(x, y)
            gradients = torch.autograd.grad(loss, [model.weight, *(t for t in (x, y) if t.requires_grad)])
            result = entry(x.detach(), y.detach())
            assert set(result.get("input_gradients", {})) == set(wanted_names)
            assert_close(result["outputs"], loss.detach())
            assert_close([result["gradients"]["weight"], *result.get("input_gradients", {}).values()], list(gradients))
    with pytest.raises(EntryNotFoundError) as error:
        archive.context().entry("joint", input_gradients=["y"])
    assert str(error.value) == (
        "no entry 'joint' returns the gradients of 'y'; those that there are return: 'joint[x,y]': 'x', 'y'; "
        "'joint[x]': 'x'; 'joint[]': no inputs"
    )


def test_requires_grad_of_what_has_no_gradient() -> None:
    def model(x: Tensor, ids: Tensor) -> Tensor:
        return x[ids].sum()

    example = torch.randn(3), torch.tensor([0, 2])
    for sets, message in (
        ([("x", "z")], "the gradient of 'z' is wanted, which is not a floating-point tensor"),
        ([("x", "ids")], "the gradient of 'ids' is wanted"),
        ([("x", "x")], "an input twice"),
        ([("x",), ("x",)], r"two sets for the entry 'joint\[x\]'"),
        ([], "must be a list of sets"),
        (["x"], "must be a list of sets"),
        ([()], "there are no gradients to compute"),
    ):
        with pytest.raises(CaptureError, match=message):
            aot_export(model, example, mode="joint", input_gradients=sets)
    with pytest.raises(CaptureError, match='for mode="joint"'):
        aot_export(model, example, input_gradients=[("x",)])


class SecondDerivative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad((x @ self.weight).square().sum(), self.weight, create_graph=True)
        return gradient.sum()


def test_double_backward_errors() -> None:
    with pytest.raises(CaptureError, match="double backward is not supported"):
        aot_export(SecondDerivative(), (torch.randn(3, 3),), mode="joint")


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        scale = nn.Parameter(torch.full((3,), 2.0))
        with torch.no_grad():
            norm = self.linear.weight.norm()
        return {"loss": (self.linear(x) * scale).sum(), "norm": norm}


def test_nn_parameter_construction_and_aot_grad_mode_mutation(build: Build) -> None:
    """A parameter that forward makes has no gradient among the results; nor do results made without gradients."""
    model, x = OwnParameter(), torch.randn(2, 3)
    archive = build(model, (x,), mode="joint")
    check_joint(archive, model, (x,))  # type: ignore[arg-type]
    assert set(archive(x)["gradients"]) == {"linear.weight", "linear.bias"}


def test_aot_autograd_raises_invalid_leaf_set() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            x.set_(y)  # type: ignore[call-overload]
        return x.sum()

    with pytest.raises(CaptureError, match="set_ changes the input 'x' in place"):
        aot_export(model, (wanted(3), torch.randn(3)), mode="joint")


def test_aot_autograd_expand_mutation_errors() -> None:
    """Eager refuses too: several elements lie at one place."""

    def model(x: Tensor) -> Tensor:
        y = x.expand(4, 3)
        y.add_(1)
        return y.sum()

    with pytest.raises(CaptureError, match="more than one element of the written-to tensor"):
        aot_export(model, (torch.randn(3),))


def test_aot_autograd_expand_mutation_functionalizes(build: Build) -> None:
    def model(x: Tensor) -> Tensor:
        y = x.expand(4, 3).clone()
        y[0].add_(1)
        x.mul_(2)
        return y.sum(0) + x

    passed, expected = torch.ones(3), torch.ones(3)
    assert_close(build(model, (torch.ones(3),))(passed), model(expected))
    assert_close(passed, expected)


def test_data_ptr_access_fails_in_forward() -> None:
    with pytest.raises(CaptureError, match="Cannot access data pointer"):
        aot_export(lambda x: x * (2 if x.data_ptr() else 3), (torch.randn(3),))
