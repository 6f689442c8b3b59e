"""Models that test_stages.py divides into stages, with example calls and dynamic shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from aotpack import Dim

B = Dim("batch", 1, 16)
N = Dim("n", 2, 40)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Convs(nn.Module):
    """Convolutions with norms: channels-last inside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b, self.c = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.n(self.a(x)))
        y = y + torch.relu(self.b(y))
        return self.c(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


class Sizes(nn.Module):
    """Values whose sizes are computed from those of the inputs, and sizes that occur as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([self.l(x), x, x[:1]], 0)
        flat = both.reshape(-1) * x.shape[0]
        scores = (self.l(y) @ x.t()).softmax(-1)
        mask = torch.arange(x.shape[0], device=x.device) < y.shape[0]
        return flat.view(2 * x.shape[0] + 1, 6).cumsum(0), scores * mask + x.shape[0] / y.shape[0]


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, times: int, scale: float, flag: bool) -> tuple[Tensor, int]:
        y = self.l(x) * scale
        z = torch.tanh(y) + times
        return self.l(z) * times, times * 2


class Cache(nn.Module):
    """State that is written early and late, and read through views."""

    k: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("k", torch.zeros(10, 8))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q = self.q(x)
        self.k.index_copy_(0, self.count.view(1), q)
        self.count += 1
        scores = torch.softmax(q @ self.k.view(5, 2, 8).flatten(0, 1).t(), -1)
        return self.o(scores @ self.k), self.count * 1


class InPlace(nn.Module):
    """Writes to an argument, returns another as it is, and one result twice."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, total: Tensor, unused: Tensor) -> tuple[Tensor, ...]:
        y = self.l(x)
        total += y.sum(0)
        z = torch.sin(self.l(y)) + total
        return z, y, y, x, self.l.bias


class Choose(nn.Module):
    """Sizes that come out of the data in the middle: of a selection, and of a number."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.a(x)
        rows = y[y[:, 0] > 0]
        z = torch.relu(self.b(rows)) + 1
        both = torch.cat([z, rows], 0).reshape(-1) * rows.shape[0]
        count = (y[:, 1] > 0).sum().item()
        torch._check(count >= 0)
        steps = torch.cos(torch.zeros(count) + y.sum()) * 2
        return both.view(rows.shape[0] * 2, 4).cumsum(0), self.b(torch.sin(z)).sum(0), steps.exp().sum() + z.sum()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.r, self.l = nn.LSTM(4, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (h, _) = self.r(x)
        return self.l(torch.tanh(y)), h


class Towers(nn.Module):
    """Branches side by side, with a weight that both read."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(12, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        left, right = torch.relu(self.a(x)), torch.relu(self.b(y))
        left, right = self.a(left).t(), self.a(right).t()
        return self.c(torch.cat([left, right], 0).t())


class Branching(nn.Module):
    """Branches with weights and a loop, between products."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(self.a(x))
        z = torch.cond(y.sum() > 0, lambda v: self.b(v) + 1, lambda v: self.c(v).relu(), (y,))
        count, total = torch._higher_order_ops.while_loop(
            lambda i, v: i < 3, lambda i, v: (i + 1, torch.sin(self.b(v))), (torch.tensor(0), z)
        )
        return self.c(total) + y, count + torch.cumsum(z, 0).sum()


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    shapes: dict[str, Any] = field(default_factory=dict)


CASES = {
    "mlp": Case(Mlp, lambda: (torch.randn(4, 8),), {"x": {0: B}}),
    "convs": Case(Convs, lambda: (torch.randn(2, 3, 8, 8),), {"x": {0: B, 2: Dim("h", 4, 16), 3: Dim("w", 4, 16)}}),
    "sizes": Case(Sizes, lambda: (torch.randn(5, 6), torch.randn(3, 6)), {"x": {0: N}, "y": {0: B}}),
    "numbers": Case(
        Numbers,
        lambda: (torch.randn(3, 4), 3, 0.5, True),
        {"x": {0: B}, "times": Dim("times", 1, 9), "scale": "dynamic", "flag": None},
    ),
    "cache": Case(Cache, lambda: (torch.randn(1, 8),)),
    "in place": Case(
        InPlace, lambda: (torch.randn(3, 4), torch.zeros(4), torch.ones(2)), {"x": {0: B}, "total": {}, "unused": {}}
    ),
    "choose": Case(Choose, lambda: (torch.randn(6, 4),), {"x": {0: N}}),
    "recurrent": Case(Recurrent, lambda: (torch.randn(2, 5, 4),), {"x": {0: B, 1: N}}),
    "branching": Case(Branching, lambda: (torch.randn(3, 4),), {"x": {0: B}}),
    "towers": Case(Towers, lambda: (torch.randn(3, 6), torch.randn(3, 6)), {"x": {0: B}, "y": {0: B}}),
}
