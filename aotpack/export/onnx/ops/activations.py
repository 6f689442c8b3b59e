"""Activations by the names that recurrent layers and fused operators have for them, with their one or two numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

functional = torch.nn.functional


@dataclass(frozen=True)
class Activation:
    """An activation.

    Attributes:
        function: `(x, *numbers)`.
        defaults: its numbers, `alpha` first, where the node has none.
    """

    function: Callable[..., torch.Tensor]
    defaults: tuple[float | None, ...] = ()


# By names in lower case.
ACTIVATIONS = {
    "relu": Activation(torch.relu),
    "tanh": Activation(torch.tanh),
    "sigmoid": Activation(torch.sigmoid),
    "affine": Activation(lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leakyrelu": Activation(functional.leaky_relu, (0.01,)),
    "thresholdedrelu": Activation(lambda x, a: torch.where(x >= a, x, 0.0), (1.0,)),
    "scaledtanh": Activation(lambda x, a, b: a * torch.tanh(b * x), (1.0, 1.0)),
    "hardsigmoid": Activation(lambda x, a, b: (a * x + b).clamp(0, 1), (0.2, 0.5)),
    "hardswish": Activation(functional.hardswish),
    "elu": Activation(functional.elu, (1.0,)),
    "softsign": Activation(functional.softsign),
    "softplus": Activation(functional.softplus),
    "gelu": Activation(functional.gelu),
    "clip": Activation(torch.clamp, (None, None)),
}
