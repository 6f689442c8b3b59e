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

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.archive.description import read_description
from aotpack.errors import CaptureError, InputError
from aotpack.export import aot_export
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

    def branches(x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(y.sum() > 0, lambda x: x * 2, lambda x: x.square() - 1, (x,)).sum()

    x = torch.tensor([1.0, 2.0, 3.0])
    for model, below in ((chosen, torch.ones(3)), (branches, 2 * x)):
        archive = build(model, (wanted(3), torch.ones(3)), mode="joint")
        for sign, slope in ((1.0, torch.full((3,), 2.0)), (-1.0, below)):
            result = archive(x, sign * torch.ones(3))
            assert_close(result["outputs"], model(x, sign * torch.ones(3)))
            assert_close(result["input_gradients"]["x"], slope)
    # What the branches of the backward compute is the backward of the branches.
    with ArchiveReader(archive.path) as reader:
        nodes = (read_description(reader) or {})["joint"]["default"].nodes
    inside = {
        node.name.partition(".")[0]: node.backward_of for node in nodes if "." in node.name and node.kind == "call"
    }
    assert sorted(inside.values()) == ["", "", "cond", "cond"]


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


def test_double_backward_errors_through_an_archive(built: Callable[..., Path]) -> None:
    """Inside the captured function derivatives of any order are right; from outside an archive has none."""

    def second(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(x.sin().exp(), x, create_graph=True)
        return torch.autograd.grad(first, x)[0]

    x = torch.tensor(0.7, requires_grad=True)
    archive = aotpack.load(built(second, (x.detach(),)))
    result = archive(x.detach())
    assert_close(result, second(x))
    with pytest.raises(InputError, match="argument 'x' requires grad, which an archive does not track") as error:
        archive(x)
    assert "detach()" in str(error.value.hint)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(result, x)


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


def test_aot_autograd_expand_mutation_backwards(build: Build) -> None:
    """A row of an expanded input is written to: the element is in the caller's buffer, and in each row."""

    def model(x: Tensor, z: Tensor) -> Tensor:
        y = x.expand(3, *x.shape)
        y[1, 1].mul_(5)
        return (y * z).sum()

    x, z = torch.arange(6.0), wanted(6)
    archive = build(model, (x.clone(), z), mode="joint")
    passed, expected = x.clone(), x.clone()
    loss = model(expected, z)
    (gradient,) = torch.autograd.grad(loss, z)
    result = archive(passed, z.detach())
    assert_close(passed, expected)
    assert_close((result["outputs"], result["input_gradients"]["z"]), (loss.detach(), gradient))


def test_aot_grad_mode_mutation(build: Build) -> None:
    """A model that ends with gradients disabled: the capture ends with the mode that it began with."""

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x * x).sum()
        torch.set_grad_enabled(False)
        return y, y.clone()

    archive = build(model, (wanted(3),), mode="joint", dynamic_shapes=None)
    assert torch.is_grad_enabled()
    result = archive(torch.ones(3))
    assert_close(
        result, {"outputs": (torch.tensor(3.0),) * 2, "gradients": {}, "input_gradients": {"x": 2 * torch.ones(3)}}
    )
    assert not any(output.requires_grad for output in result["outputs"])
