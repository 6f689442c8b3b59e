"""Models with control flow that depends on data, as users write them, and calls that take every path through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack import Dim


@dataclass(frozen=True)
class Case:
    """A model, the calls that it is compared on (the first is the example), and its dynamic shapes by argument."""

    model: nn.Module
    calls: Sequence[tuple[Tensor, ...]]
    dims: Sequence[Any] = field(default_factory=tuple)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


class Bundle(nn.Module):
    """Several models in one archive: each gets its own arguments."""

    def __init__(self, models: dict[str, nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleDict(models)

    def forward(self, calls: dict[str, tuple[Tensor, ...]]) -> dict[str, Any]:
        return {name: model(*calls[name]) for name, model in self.models.items()}


def case(model: nn.Module | Callable[..., Any], *calls: tuple[Tensor, ...], dims: Sequence[Any] = ()) -> Case:
    torch.manual_seed(0)
    return Case((model if isinstance(model, nn.Module) else Function(model)).eval(), calls, dims)


def batch(high: int = 9) -> Dim:
    return Dim(f"n{high}", min=1, max=high)


class Linears(nn.Module):
    """Two linears, for models that choose between them."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(size, size), nn.Linear(size, size)


class Branches(Linears):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.b(x) * 2, (x,))
        return y + 1


class NestedBranches(Linears):
    def forward(self, x: Tensor) -> Tensor:
        def positive(x: Tensor) -> Tensor:
            return torch.cond(x.mean() > 0.5, lambda x: self.a(x), lambda x: self.b(x).relu(), (x,))  # type: ignore[no-any-return]

        return torch.cond(x.sum() > 0, positive, lambda x: x * 2, (x,))  # type: ignore[no-any-return]


def by_size(x: Tensor) -> Any:
    return torch.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x - 1, (x,))


def by_elements(x: Tensor, mask: Tensor) -> Any:
    """Predicates that lie in one memory."""
    first = torch.cond(mask[0], lambda x: x + 1, lambda x: x * 2, (x,))
    return first, torch.cond(mask[1], lambda x: x + 1, lambda x: x * 2, (x,))


def several_results(x: Tensor) -> Any:
    rows, mask = torch.cond(x.sum() > 0, lambda x: (x.sum(0), x > 0), lambda x: (x.amax(0), x < 0), (x,))
    return rows + 1, mask


class ConvolutionBranches(nn.Module):
    """Convolutions in both branches, whose layouts differ, between convolutions outside."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.inner, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.norm.running_mean = torch.randn(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(self.stem(x)).relu()
        shifted = (y.permute(0, 2, 3, 1) * 2).permute(0, 3, 1, 2)
        chosen: Tensor = torch.cond(
            x.mean() > 0,
            lambda y, s: self.inner(y).relu() + s,
            lambda y, s: F.max_pool2d(y, 3, 1, 1) - s,
            (y, shifted),
        )
        return self.head(chosen), chosen


class EncoderBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: x.clone(), (x,))


class CountingBranches(nn.Module):
    """A branch computes the next value of a buffer."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y, count = torch.cond(x.sum() > 0, lambda x, c: (x * 2, c + 1), lambda x, c: (x - 1, c * 0.5), (x, self.count))
        self.count.copy_(count)
        return y + self.count  # type: ignore[no-any-return]


BRANCHES = {
    "linears": case(Branches(), (torch.ones(3, 4),), (-torch.ones(5, 4),), dims=[{0: batch()}]),
    "nested": case(
        NestedBranches(), (torch.randn(3, 4),), (torch.ones(1, 4),), (torch.ones(5, 4) * 0.1,), dims=[{0: batch(8)}]
    ),
    "by_size": case(by_size, (torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(7, 4),), dims=[{0: batch(7)}]),
    "by_elements": case(
        by_elements, *((torch.randn(3), torch.tensor(bits)) for bits in ([True, True], [True, False], [False, True]))
    ),
    "several_results": case(several_results, (torch.randn(3, 4).abs(),), (-torch.randn(3, 4).abs(),)),
    "convolutions": case(ConvolutionBranches(), (torch.rand(2, 3, 8, 8),), (-torch.rand(2, 3, 8, 8),)),
    "encoder": case(
        EncoderBranch(),
        (torch.rand(2, 5, 16),),
        (-torch.rand(2, 9, 16),),
        (torch.rand(2, 1, 16),),
        dims=[{1: batch(20)}],
    ),
}
