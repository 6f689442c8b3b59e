"""Calls of Triton kernels, apart from how they are launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.library import wrap_triton


@dataclass(frozen=True)
class Launch:
    """A call of a kernel.

    Attributes:
        kernel: a function with `triton.jit`.
        grid: how many blocks there are in each dim.
        arguments: by the names of the kernel's parameters; with `num_warps` and `num_stages`. `out` is what it writes.
    """

    kernel: Any
    grid: tuple[Any, ...]
    arguments: dict[str, Any]


Launcher = Callable[[Launch], Tensor]


def launch(call: Launch) -> Tensor:
    """Launches the kernel; returns its `out`."""
    grid: Any = call.grid
    wrap_triton(call.kernel)[grid](**call.arguments)
    result: Tensor = call.arguments["out"]
    return result
