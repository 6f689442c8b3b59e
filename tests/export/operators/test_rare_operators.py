"""Operators that few models call, and PyTorch's database has no samples of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jvp
from torch.nn.utils import parametrizations

from tests.export.conftest import Build, assert_close, in_double

pytestmark = pytest.mark.torch
aten = torch.ops.aten


def gradients(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """The gradients of sin(function).sum() in all arguments."""

    def run(*args: Tensor) -> Any:
        leaves = [arg.detach().requires_grad_() for arg in args]
        with torch.enable_grad():
            return torch.autograd.grad(function(*leaves).sin().sum(), leaves)

    return run


def test_copies_of_views(build: Build) -> None:
    def copies(x: Tensor) -> tuple[Any, ...]:
        z = torch.complex(x, x + 1)
        return (
            *(torch.select_copy(x, 0, 1), torch.slice_copy(x, 1, 1, 7, 2), torch.split_copy(x, 4), torch.t_copy(x)),
            *(torch.detach_copy(x), torch.view_copy(x, (48,)), torch.unbind_copy(x), torch.diagonal_copy(x)),
            *(torch.expand_copy(x[:1], (3, 8)), torch.squeeze_copy(x[:1]), torch.unsqueeze_copy(x, 0)),
            *(torch.transpose_copy(x, 0, 1), torch.permute_copy(x, (1, 0)), torch.unfold_copy(x, 0, 2, 1)),
            *(torch.alias_copy(x), torch.as_strided_copy(x, (3, 2), (8, 3), 1), torch._neg_view_copy(x)),
            *(torch.view_as_real_copy(z), torch.view_as_complex_copy(torch.stack([x, x], -1)), torch._conj_copy(z)),
        )

    x = torch.randn(6, 8)
    assert_close(build(copies, (torch.randn(6, 8),))(x), copies(x), 0)


def test_lists_of_tensors(build: Build) -> None:
    single = "acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 max round sigmoid"
    more = "sin sinh tan tanh trunc sqrt neg abs reciprocal sign zero"
    numbers = "add clamp_max clamp_min div maximum minimum mul pow sub"

    def model(x: Tensor) -> dict[str, Any]:
        xs = [x.sigmoid(), x.abs() * 0.4 + 0.1, x[:, :2].sigmoid() * 0.5]
        function = {name: getattr(torch, f"_foreach_{name}", None) for name in f"{single} {more} {numbers}".split()}
        result: dict[str, Any] = {name: function[name](xs) for name in single.split() if function[name]}
        result |= {name: function[name](xs) for name in more.split() if function[name] and name != "zero"}
        result |= {name: function[name](xs, [0.2, 0.5, 3.0]) for name in numbers.split()}
        result["norm"] = [torch._foreach_norm(xs, order) for order in (1, 2)]
        result["divided"] = torch._foreach_addcdiv(xs, xs, [x + 9, x + 9, x[:, :2] + 9], [1.0, 2.0, 3.0])
        result["multiplied"] = torch._foreach_addcmul(xs, xs, xs, [1.0, 2.0, 3.0])
        result["between"] = torch._foreach_lerp(xs, [x, x, x[:, :2]], xs)
        return result

    x = torch.randn(6, 8)
    assert_close(build(model, (torch.randn(6, 8),))(x), model(x.double()), 2e-6)


def test_reductions_and_activations(build: Build) -> None:
    def model(x: Tensor) -> tuple[Any, ...]:
        keep = x > 0.3
        scores, none = (x @ x.t()).view(1, 1, 6, 6), keep & (torch.arange(6) > 1).view(6, 1)
        return (
            *(torch._aminmax(x), torch._aminmax(x, 1, keepdim=True)),
            *(torch._is_all_true(x < 9), torch._is_any_true(x > 9)),
            *(torch._add_relu(x, x.flip(0)), torch._add_relu(x, 1.5, 2)),
            *(torch._addmm_activation(x[0, :6], x, x.t(), use_gelu=gelu) for gelu in (False, True)),
            *(torch._masked_softmax(x, keep | ~none, axis) for axis in (0, 1)),
            *(torch._masked_softmax(scores, keep[:, :6], 3, 0), torch._masked_softmax(scores, keep[:1, :6], 3, 1)),
            jvp(F.glu, (x,), (x * 2 + 1,))[1],
            *(aten.hardshrink_backward(x, x.flip(0), 0.7), aten.softshrink_backward(x, x.flip(0), 0.7)),
        )

    x = torch.randn(6, 8)
    archive = build(model, (torch.randn(6, 8),))
    assert_close(archive(x), model(x.double()), 2e-6)


def test_gradients_of_masked_softmax_and_of_a_weight_norm(build: Build) -> None:
    def model(x: Tensor, g: Tensor) -> tuple[Any, ...]:
        mask = x.detach() > 0.5
        return (
            gradients(lambda x: torch._masked_softmax(x, mask, 1))(x),
            gradients(lambda x, g: torch._weight_norm(x, g, 0))(x, g),
            gradients(lambda x, g: torch._weight_norm(x, g, 1))(x, g.new_ones(1, 8)),
        )

    calls = [(torch.randn(6, 8), torch.rand(6, 1) + 0.5) for _ in range(2)]
    assert_close(build(model, calls[0])(*calls[1]), model(*in_double(calls[1])), 2e-6)


def test_a_layer_with_normed_weights_is_trained(build: Build) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = parametrizations.weight_norm(nn.Conv1d(3, 5, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x).tanh().sum()

    model = Normed()
    archive = build(model, (torch.randn(2, 3, 9),), mode="joint")
    x = torch.randn(2, 3, 9)
    result = archive(x)
    reference = Normed().double()
    reference.load_state_dict(model.state_dict())
    reference(x.double()).backward()
    wanted = {name: p.grad for name, p in reference.named_parameters()}
    assert_close([result["gradients"][name] for name in wanted], list(wanted.values()), 2e-6)


def test_learnable_fake_quantization(build: Build) -> None:
    def model(x: Tensor, scale: Tensor, zero: Tensor) -> tuple[Any, ...]:
        whole = torch._fake_quantize_learnable_per_tensor_affine
        each = torch._fake_quantize_learnable_per_channel_affine
        learned = gradients(lambda x, s, z: whole(x, s, z, -8, 7, 0.5))
        return (
            *(whole(x, scale[:1], zero[:1], -8, 7), each(x, scale, zero, 0, -8, 7)),
            *(learned(x, scale[i : i + 1], zero[i : i + 1]) for i in (0, 1, 5)),
            gradients(lambda x, s, z: each(x, s, z, 0, -8, 7, 0.5))(x, scale, zero),
        )

    def call() -> tuple[Tensor, ...]:
        # Multiples of a half: many of them are halfway between two steps.
        zero = torch.tensor([0.5, -1.2, 1.5, -0.5, 20.0, 3.7])[torch.randperm(6)]
        return torch.randint(-40, 40, (6, 9)) / 2.0, torch.full((6,), 0.5) + torch.arange(6) / 2, zero

    first, second = call(), call()
    assert_close(build(model, first)(*second), model(*second), 2e-6)
