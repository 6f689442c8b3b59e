"""A model for archives whose weights can be replaced."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """A folded norm, fused linears, a weight that is read as it is and computed with, and a counter."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 16, 3, padding=1)
        self.norm = nn.BatchNorm1d(16)
        self.left = nn.Linear(16, 8)
        self.right = nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        x = torch.relu(self.norm(self.conv(x))).mean(-1)
        return self.left(x) * self.scale + self.right(x) * (self.scale.double() ** 2).float() + self.calls


def network(seed: int) -> Net:
    """With weights and statistics of its own."""
    torch.manual_seed(seed)
    net = Net().eval()
    assert net.norm.running_mean is not None
    assert net.norm.running_var is not None
    net.norm.running_mean.uniform_(-1, 1)
    net.norm.running_var.uniform_(0.5, 2)
    return net


def answer(net: Net, x: Tensor) -> Tensor:
    """Eager's in double precision, of the first call."""
    net = copy.deepcopy(net).double()
    net.calls.zero_()
    with torch.no_grad():
        result: Tensor = net(x.double())
    return result
