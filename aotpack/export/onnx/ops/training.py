"""Updates of optimizers: `ai.onnx.preview.training`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator

Tensor = torch.Tensor

_DOMAIN = "ai.onnx.preview.training"

# `(node, rate, step, parameter, gradient, *state)` → the new parameter and state.
_Update = Callable[..., tuple[Tensor, ...]]


def _optimizer(name: str, states: int) -> Callable[[_Update], _Update]:
    """Registers an update of one parameter as one of several: inputs and outputs are grouped by kind."""

    def register(update: _Update) -> _Update:
        @operator(name, domain=_DOMAIN)
        def compute(node: Node, rate: Tensor, step: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
            kinds = 2 + states
            count, rest = divmod(len(inputs), kinds)
            if rest or not count:
                raise node.error(f"has {len(inputs)} tensors, not {kinds} for each parameter")
            results = [update(node, rate, step, *inputs[i::count]) for i in range(count)]
            return tuple(result[kind] for kind in range(1 + states) for result in results)

        return update

    return register


@_optimizer("Adagrad", 1)
def adagrad(node: Node, rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
    rate = rate / (1 + step * node.get("decay_factor", 0.0))
    gradient = gradient + node.get("norm_coefficient", 0.0) * x
    squares = squares + gradient * gradient
    return x - rate * gradient / (torch.sqrt(squares) + node.get("epsilon", 1e-6)), squares


@_optimizer("Adam", 2)
def adam(
    node: Node, rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, ...]:
    alpha, beta = node.get("alpha", 0.9), node.get("beta", 0.999)
    gradient = gradient + node.get("norm_coefficient", 0.0) * x
    first = alpha * first + (1 - alpha) * gradient
    second = beta * second + (1 - beta) * gradient * gradient
    steps = step.to(x.dtype)
    corrected = rate * torch.sqrt(1 - torch.pow(beta, steps)) / (1 - torch.pow(alpha, steps))
    rate = torch.where(step > 0, corrected, rate)
    new = x - rate * first / (torch.sqrt(second) + node.get("epsilon", 1e-6))
    return new * (1 - node.get("norm_coefficient_post", 0.0)), first, second


@_optimizer("Momentum", 1)
def momentum(
    node: Node, rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, velocity: Tensor
) -> tuple[Tensor, ...]:
    alpha = node.require("alpha")
    gradient = gradient + node.require("norm_coefficient") * x
    beta = torch.where(step > 0, node.require("beta"), 1.0)
    velocity = alpha * velocity + beta.to(x.dtype) * gradient
    if node.require("mode") == "nesterov":
        return x - rate * (gradient + alpha * velocity), velocity
    return x - rate * velocity, velocity
