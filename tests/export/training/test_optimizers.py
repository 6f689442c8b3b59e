"""Optimizers: twenty steps of an archive against eager. All are entries of one archive, each over its own model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.training.optimizer_state import initial_state
from aotpack.export.training.update import FunctionOptimizer

pytestmark = pytest.mark.torch

Parameters = Sequence[nn.Parameter]


class Lion(optim.Optimizer):
    """As its authors publish it, with `.data`."""

    def __init__(self, params: Any, lr: float = 0.01, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg, (beta1, beta2) = state["exp_avg"], group["betas"]
                update = exp_avg.clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class CountingAdam(optim.Optimizer):
    """Adam as it was written once: a Python int counts the steps, and `math` computes with it."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.01})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, grad = self.state[p], p.grad.data
                if len(state) == 0:
                    state.update(step=0, exp_avg=torch.zeros_like(p.data), exp_avg_sq=torch.zeros_like(p.data))
                state["step"] += 1
                state["exp_avg"].mul_(0.9).add_(grad, alpha=0.1)
                state["exp_avg_sq"].mul_(0.999).addcmul_(grad, grad, value=0.001)
                size = group["lr"] * math.sqrt(1 - 0.999 ** state["step"]) / (1 - 0.9 ** state["step"])
                p.data.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(1e-8), value=-size)


def sign_descent(parameter: Tensor, gradient: Tensor, state: dict[str, Any], *, lr: float = 0.01) -> None:
    """A function; its state is a new tensor in each step."""
    state["momentum"] = 0.9 * state["momentum"] + gradient if "momentum" in state else gradient
    parameter.sub_(lr * state["momentum"].sign())


OPTIMIZERS: dict[str, Callable[[Parameters], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd_dampening": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adam_amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adadelta": lambda p: optim.Adadelta(p, weight_decay=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.01),
    "rprop": lambda p: optim.Rprop(p, lr=0.001),
    "lion": Lion,
    "counting_adam": CountingAdam,
    "function": lambda p: sign_descent,
}
X, Y = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


class Net(nn.Module):
    """With a parameter of rank 0, whose arithmetic is that of numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) * self.scale  # type: ignore[no-any-return]


def _made(name: str, model: nn.Module) -> Any:
    return OPTIMIZERS[name](list(model.parameters()))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    path = tmp_path_factory.mktemp("optimizers") / "all.aotpack"
    models = {name: Net() for name in OPTIMIZERS}
    programs = [
        aot_export(
            model,
            (X,),
            mode="train_step",
            loss=nn.functional.cross_entropy,
            loss_args=(Y,),
            optimizer=_made(name, model),
            entry=name,
        )
        for name, model in models.items()
    ]
    build_archive([replace(p, companions=()) for p in programs], path, options=BuildOptions(cache_dir=cache_dir))
    return aotpack.load(path, num_threads=1)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_those_of_eager(archive: aotpack.Model, name: str) -> None:
    context, model = archive.context(), Net()
    optimizer = _made(name, model)
    if not isinstance(optimizer, optim.Optimizer):
        optimizer = FunctionOptimizer(list(model.parameters()), optimizer)
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        assert abs(float(context.entry(name)(X, Y)["loss"]) - loss.item()) < 1e-5
        loss.backward()
        optimizer.step()
    state = context.state()

    def held(path: str) -> Tensor:
        # Entries of one archive have tensors of one name; behind the first, they have that of the entry before it.
        return torch.as_tensor(state[f"{name}.{path}" if f"{name}.{path}" in state else path].numpy())

    for path, parameter in model.named_parameters():
        _assert_near(held(path), parameter, path)
        for key, value in optimizer.state[parameter].items():
            _assert_near(held(f"optimizer.state.{path}.{key}"), torch.as_tensor(value), f"{key} of {path}")


def _assert_near(actual: Tensor, expected: Tensor, what: str) -> None:
    assert actual.shape == expected.shape, what
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max().clamp(min=0.01), what


def test_the_first_step_is_apart_only_where_it_must_be() -> None:
    apart = []
    for name in OPTIMIZERS:
        model = Net()
        parameters = dict(model.named_parameters())
        optimizer = _made(name, model)
        if not isinstance(optimizer, optim.Optimizer):
            optimizer = FunctionOptimizer(list(parameters.values()), optimizer)
        before = {parameter: dict(state) for parameter, state in optimizer.state.items()}
        if initial_state(optimizer, parameters, list(parameters)).fresh_apart:
            apart.append(name)
        # Adagrad makes its state when it is made.
        assert {parameter: dict(state) for parameter, state in optimizer.state.items()} == before
        assert all(parameter.grad is None for parameter in parameters.values())
    assert apart == ["sgd_dampening"]
