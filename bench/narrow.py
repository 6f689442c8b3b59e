"""Modules that compute in a dtype other than that of their inputs and outputs."""

from __future__ import annotations

from torch import Tensor, nn


class Narrow(nn.Module):
    """Computes in the dtype of the module inside, on fp32 inputs; the output is fp32.

    After `float()`, which converts the module inside, it computes in fp32 with the rounded weights.
    """

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, *args: Tensor) -> Tensor:
        dtype = next(self.inside.parameters()).dtype
        result: Tensor = self.inside(*(arg.to(dtype) if arg.is_floating_point() else arg for arg in args))
        return result.float()
