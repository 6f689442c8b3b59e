"""State that forward keeps in Python objects: it becomes state of the archive, or the build names the line."""

from __future__ import annotations

import collections
import copy
import dataclasses
import types
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import aotpack
from tests.support.building import Build, assert_close

pytestmark = pytest.mark.torch


class Last(nn.Module):
    """A tensor that each call replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.randn(3)

    def forward(self, x: Tensor) -> Tensor:
        out = x + self.last
        self.last = x
        return out


class Calls(nn.Module):
    """A number that each call raises."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Count(nn.Module):
    """A tensor that is no buffer, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x)
        return x * self.count


@dataclasses.dataclass
class Memory:
    hidden: Tensor
    steps: int = 0


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.memory = Memory(torch.randn(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.memory.hidden = self.cell(x, self.memory.hidden)
        self.memory.steps += 2
        return self.memory.hidden * (1.0 / (self.memory.steps + 1))


class Everywhere(nn.Module):
    """State in a submodule's dataclass, in a list, in a dict and in a namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.history = [torch.zeros(1, 3), torch.ones(1, 3)]
        self.stats: dict[str, Any] = {"sum": torch.zeros(1, 3), "n": 0, "rate": 0.5}
        self.held = types.SimpleNamespace(k=torch.zeros(2, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        old = self.history[0]
        self.history[0], self.history[1] = self.history[1], x * 2
        self.stats["sum"] = self.stats["sum"] + x
        self.stats["n"] += 1
        self.stats["rate"] *= 0.75
        self.held.k[1] = x[0] + self.held.k[0]
        self.held.k[0] += 1
        mean = self.stats["sum"] / self.stats["n"] * self.stats["rate"]
        return self.inner(x), old, mean, self.held.k * 1


class Delayed(nn.Module):
    """A value that reaches the result two calls later, through a second attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.zeros(3)
        self.two = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        out = x + self.two
        self.two = self.one
        self.one = x
        return out


class Mean(nn.Module):
    """Begins with the number 0, and is a tensor from the first call on."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Any = 0

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x
        return x - self.mean


class OldAndNew(nn.Module):
    """Returns what was there, and writes over it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.ones(3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        old, self.last = self.last, x * 2
        return old, self.last


TOTAL = torch.zeros(3)
SEEN = {"calls": 1}


def with_globals(x: Tensor) -> Tensor:
    global TOTAL
    TOTAL = TOTAL + x
    SEEN["calls"] += 1
    return TOTAL / SEEN["calls"]


def with_variables() -> Any:
    total, calls = torch.zeros(3), 0

    def step(x: Tensor) -> Tensor:
        nonlocal total, calls
        calls += 1
        total = total * 0.5 + x
        return total + calls

    return step


class OfTheClass(nn.Module):
    total: ClassVar[Tensor] = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        OfTheClass.total = OfTheClass.total + x
        return OfTheClass.total * 2


class Masked(nn.Module):
    """Caches a table of constants when it is called first, and notes things for debugging."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Any = None
        self.tables: dict[int, Tensor] = {}
        self.last_attention: Any = None
        self.losses: list[Tensor] = []
        self.counter: collections.Counter[str] = collections.Counter()

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-1]
        if self.mask is None or self.mask.shape[-1] < n:
            self.mask = torch.arange(n) * 2.0
        if n not in self.tables:
            self.tables[n] = torch.arange(n).cos()
        weights = torch.softmax(x * self.mask[:n] + self.tables[n], -1)
        self.last_attention = weights
        self.losses.append(weights.sum())
        return weights * 2


def replayed(
    model: aotpack.Model, eager: Any, size: tuple[int, ...], *, calls: int = 4, tolerance: float = 1e-5
) -> None:
    """Compares the archive with eager over several calls, in two contexts in turn, and after a reset."""
    one, two = model.context(), model.context()
    fresh = copy.deepcopy(eager)
    other = copy.deepcopy(eager)
    for _ in range(calls):
        x, y = torch.randn(size), torch.randn(size)
        with torch.no_grad():
            assert_close(one(x), fresh(x), tolerance)
            assert_close(two(y), other(y), tolerance)
            assert_close(two(x), other(x), tolerance)
    one.reset()
    fresh = copy.deepcopy(eager)
    for _ in range(2):
        x = torch.randn(size)
        with torch.no_grad():
            assert_close(one(x), fresh(x), tolerance)


STATE = [
    (Last, (3,), {"last"}),
    (Calls, (3,), {"calls"}),
    (Count, (3,), {"count"}),
    (
        Everywhere,
        (1, 3),
        {
            *("inner.memory.hidden", "inner.memory.steps", "history.0", "history.1"),
            *("stats.sum", "stats.n", "stats.rate", "held.k"),
        },
    ),
    (Delayed, (3,), {"one", "two"}),
    (Mean, (3,), {"mean"}),
    (OldAndNew, (3,), {"last"}),
]


@pytest.mark.parametrize(("kind", "size", "names"), STATE, ids=[kind.__name__ for kind, _, _ in STATE])
def test_state_in_objects_is_state_of_the_archive(
    build: Build, kind: type[nn.Module], size: tuple[int, ...], names: set[str]
) -> None:
    torch.manual_seed(3)
    eager = kind()
    before = copy.deepcopy(vars(eager))
    model = build(eager, (torch.randn(size),))
    assert {key: str(value) for key, value in vars(eager).items()} == {k: str(v) for k, v in before.items()}
    assert set(model.context().state()) == names
    replayed(model, eager, size)
