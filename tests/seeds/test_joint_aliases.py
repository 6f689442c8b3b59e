"""Inputs that share memory: one tensor passed twice, views of one base, backwards that return what was passed.

The scenarios of the third seed document, "AOTAutograd", that are about aliases; the others are in test_joint.py. Calls
are made in this process: what is sent to another is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import CaptureError, InputError
from aotpack.export import Variant, aot_export
from tests.support.building import assert_close

pytestmark = pytest.mark.torch

Built = Callable[..., Path]


def wanted(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _product(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


def test_arg_dupe(built: Callable[..., Path]) -> None:
    """The backward returns saved inputs: `y` is the gradient of `x`."""
    x, y = wanted(3), wanted(3)
    archive = aotpack.load(built(_product, (x, y), mode="joint"))
    shared = torch.tensor([1.0, 2.0, 3.0])
    gradients = archive(shared, shared)["input_gradients"]
    assert_close(gradients, {"x": shared, "y": shared})
    gradients["x"].zero_()
    assert_close(shared, torch.tensor([1.0, 2.0, 3.0]))


def test_alias_inputs(built: Built) -> None:
    """Views of one base that the model makes itself, and writes to."""

    def model() -> Tensor:
        a = torch.tensor([1])[0:1]
        b = a.squeeze()
        a[0] = 0
        if a[0] < 1e5:
            a[0] = 2
        return b

    assert torch.from_dlpack(aotpack.load(built(model, ()))()).item() == model().item() == 2


def test_grad_inputs_alias_inputs(built: Built) -> None:
    """A backward that returns what the forward saved: the gradient is a tensor of its own."""

    @torch.library.custom_op("aotpack_test_aliases::second", mutates_args=())
    def second(x: Tensor, y: Tensor) -> Tensor:
        return y.clone()

    def keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    second.register_fake(lambda x, y: torch.empty_like(y))
    second.register_autograd(lambda ctx, gradient: (*ctx.saved_tensors, gradient), setup_context=keep)
    archive = aotpack.load(built(lambda x, y: second(x, y).sum(), (wanted(3), wanted(3)), mode="joint"))
    x = torch.tensor([1.0, 2.0, 3.0])
    gradients = archive(x, torch.zeros(3))["input_gradients"]
    assert_close(gradients, {"x": x, "y": torch.ones(3)})
    gradients["x"].zero_()
    assert_close(x, torch.tensor([1.0, 2.0, 3.0]))


def _accumulate(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return a + b


def test_arg_dupe_mutated_and_alias_inputs(built: Callable[..., Path]) -> None:
    """Views of one base may be passed as long as they do not share what is written."""
    archive = aotpack.load(built(_accumulate, (torch.randn(3), torch.randn(3))))
    base = torch.arange(6.0)
    expected = base.clone()
    assert_close(archive(base[:3], base[3:]), _accumulate(expected[:3], expected[3:]))
    assert_close(base, expected)
    for a, b in ((base[:3], base[:3]), (base[:3], base[2:5])):
        with pytest.raises(InputError, match="inputs 'a' and 'b' share memory, but the call writes to 'a'"):
            archive(a, b)
    assert_close(base, expected)


@pytest.mark.parametrize("start", [0, 2])
def test_arg_dupe_mutated_in_the_example(start: int) -> None:
    base = torch.randn(6)
    with pytest.raises(CaptureError, match="example inputs 'a' and 'b' share memory"):
        aot_export(_accumulate, (base[:3], base[start : start + 3]))


def test_arg_dupe_mutated_in_the_example_with_a_backward() -> None:
    def model(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return (x * a * b).sum()

    base = torch.randn(3)
    with pytest.raises(CaptureError, match="example inputs 'a' and 'b' share memory"):
        aot_export(model, (wanted(3), base, base), mode="joint")


# ---- variants for one tensor in several places ----------------------------------------------------------------------


def _truncated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y.add_(1)
    return x + y


def test_arg_dupe_via_dynamo_recompiles(built: Built) -> None:
    example = torch.randn(3, 3), torch.randn(3, 3)
    dims = {"x": {0: "n"}, "y": {0: "n"}}
    path = built(_truncated, example, dynamic_shapes=dims, variants=[Variant(same=[("y", "x")]), {}])
    context = aotpack.load(path).context()
    assert context.variants == ["x is y", "general"]
    for rows in (1, 2, 5):
        passed, expected = torch.randn(rows, 3), torch.empty(0)
        expected = passed.clone()
        assert_close(context(passed, passed), _truncated(expected, expected))
        assert_close(passed, expected)
        assert context.variant == "x is y"
        x, y = torch.randn(rows, 3), torch.randn(rows, 3)
        expected_x, expected_y = x.clone(), y.clone()
        assert_close(context(x, y), _truncated(expected_x, expected_y))
        assert_close((x, y), (expected_x, expected_y))
        assert context.variant == "general"
    # In a layout that the model does not read, so that what is written comes back from a copy.
    strided = torch.randn(3, 5).t()[1:4]
    expected = strided.clone()
    assert_close(context(strided, strided), _truncated(expected, expected))
    assert_close(strided, expected)
    base = torch.randn(6, 3)
    before = base.clone()
    for other, how in ((base[1:4], "addresses"), (base[:3].as_strided((3, 3), (1, 3)), "strides")):
        with pytest.raises(
            InputError,
            match="^inputs 'x' and 'y' share memory, but the call writes to 'x'; variant 'x is y' needs 'x' is 'y', "
            f"got tensors with different {how}$",
        ):
            context(base[:3], other)
    assert_close(base, before)


class ManyArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(3, 3))
        self.outside = torch.randn(3, 3)

    def forward(self, tensors: list[Tensor], e: int, f: Tensor) -> Tensor:
        a, b = tensors
        a.mul_(2)
        b.trunc_()
        same = 1 if a is b else 2
        return ((a + b + self.outside + self.mean) * e * f * same).sum()


@pytest.mark.parametrize("shared", [("a", "a", "f"), ("a", "a", "a"), ("a", "b", "f")])
def test_arg_dupe_via_dynamo_recompiles_many_args_param_non_tensor_arg_list_with_global(
    built: Built, shared: tuple[str, str, str]
) -> None:
    """Tensors in a list, beside a number, a parameter and a tensor of the model, with gradients."""
    torch.manual_seed(0)
    model, example = ManyArguments(), ([torch.randn(3, 3), torch.randn(3, 3)], 2, wanted(3, 3))
    names = ["tensors.0", "tensors.1"]
    archive = aotpack.load(built(model, example, mode="joint", variants=[Variant(same=[names]), {}]))
    tensors = {name: 3 * torch.randn(3, 3) for name in "abf"}
    a, b, f = (tensors[name] for name in shared)
    if shared[2] == "a":
        with pytest.raises(InputError, match=r"'tensors.1' only; no variant is for 'tensors.0' is 'f'$"):
            archive([a, b], 2, f)
        return
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    given = [copies[name] for name in shared[:2]]
    factor = copies["f"].requires_grad_()
    model.mean.grad = None
    loss = model(given, 2, factor)
    loss.backward()
    result = archive([a, b], 2, f)
    assert_close(result["outputs"], loss.detach())
    assert_close(result["gradients"]["mean"], model.mean.grad)
    assert_close(result["input_gradients"]["f"], factor.grad)
    assert_close([a, b], given)


def test_arg_dupe_with_gradients_of_both(built: Built) -> None:
    """The gradient of each is that of the one tensor, as `x.grad` is in eager."""
    variants = [Variant(same=[("x", "y")]), {}]
    archive = aotpack.load(built(_product, (wanted(3), wanted(3)), mode="joint", variants=variants))
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3)
    assert_close(archive(x, x)["input_gradients"], {"x": 2 * x, "y": 2 * x})
    assert_close(archive(x, y)["input_gradients"], {"x": y, "y": x})


def _capture(*same: Any, x: Tensor | None = None, y: Tensor | None = None) -> None:
    given = torch.randn(3) if x is None else x, torch.randn(3) if y is None else y
    aot_export(_product, given, mode="joint", variants=[Variant(same=same), {}])


def test_arg_dupe_that_cannot_be() -> None:
    x = wanted(3)
    for same, y, message in (
        ([("x",)], None, "as one tensor"),
        (["xy"], None, "the inputs 'xy' as one tensor"),
        ([(0, 1)], None, r"the inputs \(0, 1\) as one tensor"),
        ([("x", "z")], None, "'z' as one tensor with another, which is not a tensor of the entry 'joint'"),
        ([("x", "x")], None, "twice"),
        ([("x", "y")], torch.randn(4, 1), "'x' and 'y' cannot be one tensor"),
        ([("x", "y")], torch.randn(3).double(), "'x' and 'y' cannot be one tensor"),
        ([("x", "y")], torch.randn(1), r"their shapes in the example call are \[3\] and \[1\]"),
        ([("x", "y")], torch.randn(3), "only one of them requires gradients"),
    ):
        with pytest.raises(CaptureError, match=message):
            _capture(*same, x=x, y=y)
