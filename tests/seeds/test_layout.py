"""Layout: convolutions compute in the layout that is fast, and nobody outside of them can tell.

The scenarios of the second seed document, "layout optimization". Where a scenario compiles, an archive is built and
called in a process without torch; where it breaks the graph, each part is an archive, and they are called in turn.
Accuracy is measured as there: the error against double precision may be at most a factor more than eager's own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.support.building import in_double
from tests.support.torchless import RemoteModel

pytestmark = pytest.mark.torch

Build = Callable[..., RemoteModel]

# Two right ways to add up the same numbers differ by about their own errors.
_FACTOR = 3.0
# Of the root mean square of what is expected: the error of a sum of 512 * 3 * 3 numbers in single precision, taken one
# after another. Eager's sums are taken in blocks, which happens to be four times better.
_ROUNDING = (512 * 9) ** 0.5 * 2.0**-24


def rms(value: Tensor) -> float:
    return value.double().square().mean().sqrt().item()


def assert_as_accurate(actual: Tensor, eager: Tensor, exact: Tensor, what: str = "the result") -> None:
    """The root mean square error of `actual` is at most `_FACTOR` times that of `eager`, both in single precision."""
    assert actual.shape == exact.shape, what
    error, own = rms(actual.double() - exact), rms(eager.double() - exact)
    assert error <= _FACTOR * own + _ROUNDING * rms(exact), f"{what}: error {error:.3g}, eager's is {own:.3g}"


def check_inference(build: Build, parts: Sequence[nn.Module], *calls: tuple[Tensor, ...]) -> None:
    """Builds an archive of each part; together they are as accurate as the parts are in eager."""
    archives = []
    passed: Any = calls[0]
    for part in parts:
        archives.append(build(part, passed))
        with torch.no_grad():
            passed = (part(*passed),)
    model = nn.Sequential(*parts)
    exact = copy.deepcopy(model).double()
    for (x,) in calls:
        answer = x
        for archive in archives:
            answer = archive(answer)
        with torch.no_grad():
            assert_as_accurate(answer, model(x), exact(in_double(x)))


class TwoConvolutions(nn.Module):
    """Three channels, then many: strided convolutions without bias."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.conv1(x))
        return y


def test_2conv_with_graph_break(build: Build) -> None:
    torch.manual_seed(0)
    model = TwoConvolutions().eval()
    calls = [(torch.rand(2, 3, 16, 16),) for _ in range(2)]
    check_inference(build, [model.conv1, model.conv2], *calls)
    check_inference(build, [model], *calls)


def test_3conv_with_graph_break(build: Build) -> None:
    """Patches, a depthwise convolution over all that is left of the image, and one of a single pixel."""
    torch.manual_seed(1)
    width = 512
    patches = nn.Conv2d(3, width, 7, stride=7, bias=False)
    depthwise = nn.Conv2d(width, width, 7, groups=width, padding="same", bias=False)
    pointwise = nn.Conv2d(width, width, 1, bias=False)
    calls = [(torch.randn(2, 3, 16, 16),) for _ in range(2)]
    check_inference(build, [nn.Sequential(patches, depthwise), pointwise], *calls)
    check_inference(build, [patches, depthwise, pointwise], *calls)


def check_layout(archive: RemoteModel, model: nn.Module) -> None:
    x = torch.randn(2, 3, 5, 5)
    with torch.no_grad():
        expected = model(x)
    result = archive(x)
    assert result.stride() == expected.stride()
    # Five divides no size but that of the last two dims: only memory in row-major order can be seen so.
    assert torch.equal(result.view(5, -1), result.reshape(5, -1))
    torch.testing.assert_close(result.view(5, -1), expected.view(5, -1), rtol=1e-4, atol=1e-5)


def test_keep_output_layout_infer(build: Build) -> None:
    model = nn.Conv2d(3, 128, 3, padding=1, bias=False).eval()
    check_layout(build(model, (torch.randn(2, 3, 5, 5),), without=("all",)), model)


def test_keep_output_layout_with_freezing(build: Build) -> None:
    model = nn.Conv2d(3, 128, 3, padding=1, bias=False).eval()
    check_layout(build(model, (torch.randn(2, 3, 5, 5),)), model)


class Loss(nn.Module):
    """The sum of all that a model returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Tensor) -> Tensor:
        total: Tensor = self.model(*args).sum()
        return total


def gradients(model: nn.Module, *args: Tensor) -> dict[str, Tensor]:
    """Loss and gradients in eager, by the names that a joint archive gives them."""
    names = [name for name, _ in model.named_parameters()]
    loss = model(*args)
    found = torch.autograd.grad(loss, list(model.parameters()))
    return {"loss": loss.detach(), **dict(zip(names, found, strict=True))}


def check_training(archive: RemoteModel, model: nn.Module, *calls: tuple[Tensor, ...]) -> None:
    exact_model = copy.deepcopy(model).double()
    for call in calls:
        answer = archive(*call)
        got = {"loss": answer["outputs"], **answer["gradients"]}
        eager, exact = gradients(model, *call), gradients(exact_model, *in_double(call))
        assert list(got) == list(exact)
        for name, value in got.items():
            assert_as_accurate(value, eager[name], exact[name], f"the gradient of {name}")


@pytest.mark.parametrize("channels_last", [False, True], ids=["contiguous", "channels_last"])
def test_training_acc(channels_last: bool, build: Build) -> None:
    torch.manual_seed(2)
    model: nn.Module = Loss(TwoConvolutions())
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    calls = [(torch.rand(2, 3, 16, 16),) for _ in range(2)]
    check_training(build(model, calls[0], mode="joint"), model, *calls)


# ---- mutation -------------------------------------------------------------------------------------------------------


def check_function(build: Build, function: Callable[[Tensor], Any], x: Tensor) -> None:
    """The archive returns what the function does, and leaves its argument as the function does; twice."""
    archive = build(function, (x,))
    for given in (torch.ones_like(x), torch.randn_like(x)):
        written = given.clone()
        expected = function(written)
        answer = archive(given)
        assert torch.equal(given, written)
        assert (answer is None) == (expected is None)
        if expected is not None:
            assert torch.equal(answer, expected)


def test_mutate_view(build: Build) -> None:
    def function(x: Tensor) -> None:
        x.view(3, 2).mul_(2)

    check_function(build, function, torch.ones(2, 3))


def test_mutate_base(build: Build) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.view(3, 2)
        x.mul_(2)
        return y

    check_function(build, function, torch.ones(2, 3))


class Mutating(nn.Module):
    """Doubles the result of a convolution in place, through its base or through a view, and returns the other."""

    def __init__(self, through: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 512, 3, stride=2, bias=False)
        self.through = through

    def forward(self, x: Tensor) -> Tensor:
        base: Tensor = self.conv(x)
        view = base.view(-1)
        if self.through == "base":
            base.mul_(2)
            return view
        view.mul_(2)
        return base


def test_mutate_base_for_conv_output(build: Build) -> None:
    torch.manual_seed(3)
    check_inference(build, [Mutating("base").eval()], *[(torch.rand(2, 3, 16, 16),) for _ in range(2)])


def test_mutate_view_for_conv_output(build: Build) -> None:
    torch.manual_seed(4)
    check_inference(build, [Mutating("view").eval()], *[(torch.rand(2, 3, 16, 16),) for _ in range(2)])


# ---- backward -------------------------------------------------------------------------------------------------------


def test_dynamic_shape_specialization(build: Build) -> None:
    """One archive serves all sizes, forward and backward: none of them is compiled in."""

    class Waves(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            z = a.sin() + b.cos()
            return z.sum(), z

    size = Dim("size", min=2, max=1024)
    example = (torch.randn(2, 6, requires_grad=True), torch.randn(2, 6))
    archive = build(Waves(), example, mode="joint", dynamic_shapes={"a": {1: size}, "b": {1: size}})
    for n in (4, 8, 16, 1000):
        a, b = torch.randn(2, n), torch.randn(2, n)
        answer = archive(a, b)
        loss, z = answer["outputs"]
        expected = a.sin() + b.cos()
        torch.testing.assert_close(z, expected)
        torch.testing.assert_close(loss.double(), expected.double().sum(), rtol=1e-5, atol=1e-4)
        assert list(answer["input_gradients"]) == ["a"]
        torch.testing.assert_close(answer["input_gradients"]["a"], a.cos())


def test_nll_loss_backward(build: Build) -> None:
    """A convolution's result is reshaped, its layout gone, on the way to a loss over two-dimensional labels."""

    class Tagger(nn.Module):
        def __init__(self, features: int, classes: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, classes, 3, padding="same")
            self.out = nn.Linear(features * classes, classes)

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            x = self.conv(x)
            batch, channels, steps, features = x.size()
            x = self.out(x.reshape(batch, steps, channels * features))
            logits = x.reshape(batch, x.size(2), x.size(1))
            return nn.functional.cross_entropy(logits, labels)

    torch.manual_seed(5)
    model = Tagger(39, 37)
    calls = [(torch.randn(6, 1, 48, 39), torch.randint(0, 36, (6, 48))) for _ in range(2)]
    check_training(build(model, calls[0], mode="joint"), model, *calls)
