"""Functions as models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.export.conftest import Build, assert_close


class Functions(nn.Module):
    """Several functions of the same arguments, whose results come by name."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *args: Tensor) -> dict[str, Any]:
        return {name: function(*args) for name, function in self.functions.items()}


def agree(build: Build, function: Any, args: tuple[Tensor, ...], others: tuple[Tensor, ...], tolerance: float) -> None:
    """An archive of `function` gives what eager gives, for the inputs that it was traced with and for others."""

    class Module(nn.Module):
        def forward(self, *inputs: Tensor) -> Any:
            return function(*inputs)

    archive = build(Module().eval(), args)
    for call in (args, others):
        with torch.no_grad():
            assert_close(archive(*call), function(*call), tolerance)
