"""Activations that the kernels of archives apply to their results."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# Numbers of csrc/kernels/types.h.
ACTIVATIONS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "none": (0, lambda x: x),
    "relu": (1, F.relu),
    "gelu": (2, F.gelu),
    "gelu_tanh": (3, functools.partial(F.gelu, approximate="tanh")),
    "silu": (4, F.silu),
    "sigmoid": (5, torch.sigmoid),
    "tanh": (6, torch.tanh),
    "hardswish": (7, F.hardswish),
    "relu6": (8, F.relu6),
    "hardsigmoid": (9, F.hardsigmoid),
}
BY_NUMBER = dict(ACTIVATIONS.values())
