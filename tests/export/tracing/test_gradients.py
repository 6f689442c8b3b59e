"""Models that compute gradients themselves."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export
from aotpack.export.tracing import gradients
from tests.export.conftest import Build, assert_close
from tests.support.torch_version import needs_torch


class Derivatives(nn.Module):
    """One of each way to ask for a derivative, of a layer of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.lstm = nn.LSTM(6, 4, 2, batch_first=True)
        self.register_buffer("offset", torch.randn(6))

    def _f(self, x: torch.Tensor) -> torch.Tensor:
        # (Of rows that hardly vary, the second derivative of a norm with a small eps is but rounding.)
        return F.layer_norm(torch.tanh(self.layer(x)) * x.sin(), (6,), eps=0.5) + self.offset

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        return self._f(x).pow(3).sum()

    def forward(self, x: torch.Tensor, g: torch.Tensor) -> dict[str, Any]:
        z = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(self._loss(z), z, create_graph=True)
        named = dict(self.layer.named_parameters())
        return {
            "autograd": torch.autograd.grad(self._f(z), z, g),
            "parameters": torch.autograd.grad(self._loss(z), [self.layer.weight, self.layer.bias]),
            "unused": torch.autograd.grad(self._loss(z), [z, self.layer.bias, g.requires_grad_()], allow_unused=True),
            "second": torch.autograd.grad(first.sin().sum(), z),
            "penalty": first.square().mean(),
            "checkpoint": torch.autograd.grad(checkpoint(self._loss, z, use_reentrant=False), z),
            "recurrent": torch.autograd.grad(self.lstm(z.unsqueeze(1))[0].square().sum(), z),
            "functional": grad(lambda p: functional_call(self.layer, p, (x,)).sin().sum())(named),
            # (torch's vmap of a layer_norm fixes the size that it maps over.)
            "each": vmap(grad(lambda y: torch.softmax(self.layer(y).sin(), -1).square().sum()))(x),
            "vjp": vjp(self._f, x)[1](g),
            "jacobian": jacrev(self._f)(x[0]),
            "result": self._f(z),
        }


def test_derivatives(build: Build) -> None:
    model = Derivatives()
    batch = Dim("batch", max=100)
    archive = build(model, (torch.randn(4, 6), torch.randn(4, 6)), dynamic_shapes={"x": {0: batch}, "g": {0: batch}})
    reference = Derivatives().double()
    reference.load_state_dict(model.state_dict())
    for rows in (4, 1, 9):
        x, g = torch.randn(rows, 6), torch.randn(rows, 6)
        expected = reference(x.double(), g.double())
        for _ in range(2):
            assert_close(archive(x, g), pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, expected), 2e-5)
    assert all(p.grad is None for p in model.parameters())


def test_forward_derivatives_of_fixed_sizes(build: Build) -> None:
    class Forward(nn.Module):
        def forward(self, x: torch.Tensor, t: torch.Tensor) -> tuple[Any, ...]:
            loss = lambda y: (y.sin() * y.cumsum(0).exp()).sum()  # noqa: E731
            return (*jvp(torch.sigmoid, (x,), (t,)), hessian(loss)(x), torch.autograd.functional.hessian(loss, x))

    archive = build(Forward(), (torch.randn(5), torch.randn(5)))
    x, t = torch.randn(5), torch.randn(5)
    assert_close(archive(x, t), Forward()(x.double(), t.double()), 1e-5)


def test_models_that_are_asked_for_gradients_of_their_inputs(build: Build) -> None:
    def gradient(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(F.conv1d(x, w, padding=1).relu().sum(), (x, w))

    x, w = torch.randn(2, 3, 9), torch.randn(5, 3, 3)
    archive = build(gradient, (x.requires_grad_(), w.requires_grad_()))
    x, w = torch.randn(2, 3, 9), torch.randn(5, 3, 3)
    expected = gradient(x.double().requires_grad_(), w.double().requires_grad_())
    assert_close(archive(x, w), expected)


def test_backward_is_refused() -> None:
    def backward(x: torch.Tensor) -> torch.Tensor | None:
        z = x.clone().requires_grad_()
        z.sin().sum().backward()
        return z.grad

    with pytest.raises(CaptureError, match=r"calls backward\(\), which adds to the .grad of tensors") as caught:
        aot_export(backward, (torch.randn(3),))
    assert "torch.autograd.grad" in str(caught.value.hint)


@needs_torch(2, 13, "refuses it first, in its own words")
def test_gradients_off_the_way_of_the_example_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return grad(lambda y: (y.sin() * self.w).sum())(x)

    model = Inner()
    save_file(dict(model.state_dict()), tmp_path / "weights.safetensors")
    with pytest.raises(CaptureError, match="computes gradients itself"):
        aot_export(model, (torch.randn(3),), weights=tmp_path / "weights.safetensors")


def test_what_is_touched_of_torch() -> None:
    """Fails loudly where torch moves one of the private interfaces that gradients.py names."""
    from torch.autograd import forward_ad
    from torch.export._trace import _export

    parameters = inspect.signature(_export).parameters
    assert list(parameters)[:4] == ["mod", "args", "kwargs", "dynamic_shapes"]
    assert {"strict", "pre_dispatch"} <= set(parameters)
    assert torch._C._functorch.is_functorch_wrapped_tensor(torch.ones(2)) is False
    autograd: Any = torch.autograd
    assert autograd._engine_run_backward is torch.autograd.graph._engine_run_backward
    assert callable(forward_ad.enter_dual_level)
    x = torch.ones(2, requires_grad=True)
    ways = {
        "grad": lambda: torch.autograd.grad(x.sum(), x),
        "func.grad": lambda: grad(torch.sum)(x.detach()),
        "vjp": lambda: vjp(torch.sin, x.detach())[1](x.detach()),
        "jvp": lambda: jvp(torch.sin, (x.detach(),), (x.detach(),)),
    }
    for name, way in ways.items():
        with gradients.watched() as seen:
            way()
        assert seen.any, name
        assert seen.backward == (name != "jvp")
    with gradients.watched() as seen, pytest.raises(CaptureError):
        x.sum().backward()
    with gradients.watched() as seen:
        vmap(torch.sin)(x)
    assert not seen.any
