"""State that forward keeps in Python objects: it becomes state of the archive, or the build names the line."""

from __future__ import annotations

import collections
import copy
import dataclasses
import importlib
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

import aotpack
from aotpack.export import Program, aot_export
from tests.export.pass_checks import replayed
from tests.support.building import Build, Pack, assert_close

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


class Tuple(nn.Module):
    """A tuple of tensors, as recurrent layers return them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        self.state = (torch.zeros(1, 4), torch.randn(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        out, self.state = self.lstm(x, self.state)
        return out


class Cache(nn.Module):
    """A cache that is no buffer, a view of it, and where it ends as an int."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = torch.zeros(16, 3)
        self.first = self.keys[0]
        self.end = 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[self.end : self.end + 1] = x
        self.end += 1
        return self.keys.cumsum(0), self.first * 2


class Zoo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kinds = (Last, Calls, Count, Everywhere, Delayed, Mean, OldAndNew, OfTheClass, Masked, Tuple, Cache)
        self.parts = nn.ModuleDict({kind.__name__: kind() for kind in kinds})
        self.step = with_variables()

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        results = [part(x[None] if name in ("Everywhere", "Tuple") else x) for name, part in self.parts.items()]
        return *results, with_globals(x), self.step(x)


NAMES = {
    "Last": ("last",),
    "Calls": ("calls",),
    "Count": ("count",),
    "Delayed": ("one", "two"),
    "Mean": ("mean",),
    "OldAndNew": ("last",),
    "Everywhere": (
        *("inner.memory.hidden", "inner.memory.steps", "history.0", "history.1"),
        *("stats.sum", "stats.n", "stats.rate", "held.k"),
    ),
    "Tuple": ("state.0", "state.1"),
    "Cache": ("keys", "end"),
}
ALL = {f"parts.{part}.{name}" for part, names in NAMES.items() for name in names}


def as_objects(value: nn.Module) -> str:
    """The state of all objects, as text."""
    parts = [f"{name}: {vars(part)}" for name, part in value.named_modules() if not isinstance(part, nn.ModuleDict)]
    return "\n".join([*parts, str(TOTAL), str(SEEN), str(OfTheClass.total), str(vars(value)["step"].__closure__)])


def test_state_in_objects_is_state_of_the_archive(build: Build) -> None:
    torch.manual_seed(3)
    eager = Zoo()
    before = as_objects(eager)
    model = build(eager, (torch.randn(3),))
    assert as_objects(eager) == before
    one, two = model.context(), model.context()
    assert set(one.state()) == ALL | {"TOTAL", "SEEN.calls", "OfTheClass.total", "total", "calls"}
    calls = [torch.randn(3) for _ in range(4)]
    with torch.no_grad():
        wanted = [[leaf.clone() for leaf in pytree.tree_leaves(eager(x))] for x in calls]
    for x, answer in zip(calls, wanted, strict=True):
        assert_close(list(pytree.tree_leaves(one(x))), answer, 1e-5)
    for x, answer in zip(calls[:2], wanted, strict=False):
        assert_close(list(pytree.tree_leaves(two(x))), answer, 1e-5)
    kept = two.state()
    one.reset()
    assert_close(list(pytree.tree_leaves(one(calls[0]))), wanted[0], 1e-5)
    one.load_state(kept)
    assert_close(list(pytree.tree_leaves(one(calls[2]))), wanted[2], 1e-5)
    assert_close(list(pytree.tree_leaves(two(calls[2]))), wanted[2], 1e-5)
    assert np.asarray(one.state()["parts.Calls.calls"]) == 3


# ---- entries that share state, gradients, dynamic sizes --------------------------------------------------------------


class Steps(nn.Module):
    """Two methods over one state; a third that reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.hidden = torch.zeros(3)
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = self.hidden * 0.5 + x * self.scale
        self.seen += 1
        return (self.hidden * self.seen).sum()

    def start(self, x: Tensor) -> Tensor:
        self.hidden, self.seen = x, 1
        return x * 2

    def grow(self, x: Tensor) -> Tensor:
        self.hidden = self.hidden + x
        self.seen += 2
        return self.hidden * 1

    def read(self, x: Tensor) -> Tensor:
        return self.hidden + x


def test_entries_share_it(pack: Pack) -> None:
    x = torch.randn(3)
    model = Steps()
    programs = [aot_export(model, (x,), method=method) for method in ("grow", "read")]
    joint = aot_export(model, (x,), mode="joint")
    context = aotpack.load(pack([*programs, joint]), num_threads=1).context()
    eager = Steps()
    for _ in range(3):
        x = torch.randn(3)
        assert_close(context.entry("grow")(x), eager.grow(x).detach(), 1e-6)
        eager.zero_grad()
        eager.hidden = eager.hidden.detach()
        loss = eager(x)
        loss.backward()
        got = context.entry("joint")(x)
        assert_close(got["outputs"], loss.detach(), 1e-5)
        assert_close(got["gradients"]["scale"], eager.scale.grad, 1e-5)
        assert_close(context.entry("read")(x), eager.read(x).detach(), 1e-5)


def state_of(program: Program) -> set[str]:
    names = {str(node.target) for node in program.graph.find_nodes(op="get_attr")}
    return {name for name in names if program.constant_info(name).mutated}


def test_state_beside_dynamic_sizes() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(3)
            self.rows = 0
            self.last: Any = None

        def forward(self, x: Tensor) -> Tensor:
            self.total = self.total + x.sum(0)
            self.rows += x.shape[0]
            self.last = x * 2
            return self.total / self.rows + self.last

    shapes = {"x": {0: aotpack.Dim("b", 1, 8)}}
    calls = [(torch.randn(size, 3),) for size in (2, 1, 8, 5)]
    program = replayed(Model(), *calls, dynamic_shapes=shapes)
    assert state_of(program) == {"total", "rows"}
    assert (program.signature.dims[0].min, program.signature.dims[0].max) == (1, 8)


def test_what_is_written_before_it_is_read_is_none() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Masked()
            self.scratch = {"x": torch.zeros(2)}
            self.trace: list[Any] = []

        def forward(self, x: Tensor) -> Tensor:
            self.shape = list(x.shape)
            self.scratch["x"] = x * self.shape[0]
            self.trace.clear()
            self.trace.append(self.scratch["x"])
            self.aux_loss = sum(t.sum() for t in self.trace)
            return self.inner(self.trace[0]) + self.aux_loss

    model = Model()
    program = replayed(model, *[(torch.randn(2, 5),) for _ in range(3)])
    assert state_of(program) == set()
    assert program.reference is not None
    assert not hasattr(model, "shape") and model.inner.mask is None and model.inner.losses == []


@pytest.mark.parametrize("track", [True, False])
def test_batch_norm_with_a_cumulative_average(track: bool) -> None:
    model = nn.BatchNorm1d(3, momentum=None, track_running_stats=track)
    calls = [(torch.randn(4, 3) * 2 + 1,) for _ in range(3)]
    eager = copy.deepcopy(model)
    program = replayed(model, *calls)
    assert state_of(program) == ({"num_batches_tracked", "running_mean", "running_var"} if track else set())
    if track:
        for (x,) in calls:
            eager(x)
        for name, value in eager.named_buffers():
            assert_close([program.graph_module.get_buffer(name)], [value], 1e-6)


def test_counters_that_nothing_depends_on_build() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            self.shapes: set[Any] = set()
            self.uses: collections.Counter[str] = collections.Counter()
            self.mean = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            self.uses["x"] += 1
            self.shapes.add(tuple(x.shape))
            self.mean = self.mean * 0.9 + x.mean().item() * 0.1
            return x * 2

    replayed(Model(), *[(torch.randn(2),) for _ in range(2)])


def test_modules_that_a_call_imports_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_in_a_call.py").write_text("import math\n\nFACTOR = math.pi\n")
    monkeypatch.syspath_prepend(tmp_path)

    def model(x: Tensor) -> Tensor:
        module = importlib.import_module("imported_in_a_call")
        return x * module.FACTOR

    assert aot_export(model, (torch.ones(3),)).graph.find_nodes(op="placeholder")
    assert {"math", "FACTOR"} <= vars(sys.modules["imported_in_a_call"]).keys()


def test_submodules_that_a_call_imports_stay_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undone, the import would not be repeated: the package would ask itself for the submodule without end."""
    folder = tmp_path / "imports_lazily"
    folder.mkdir()
    (folder / "sub.py").write_text("FACTOR = 3.0\n")
    (folder / "__init__.py").write_text(
        "def __getattr__(name):\n"
        "    if name == 'sub':\n"
        "        import imports_lazily.sub as sub\n"
        "        return sub\n"
        "    raise AttributeError(name)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    package = importlib.import_module("imports_lazily")

    def model(x: Tensor) -> Tensor:
        return x * package.sub.FACTOR

    assert aot_export(model, (torch.ones(3),)).graph.find_nodes(op="placeholder")
    assert package.sub.FACTOR == 3
