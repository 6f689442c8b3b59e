"""Which ways a search takes, of kernels whose times are made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest

from aotpack.cli import tuning_search
from aotpack.cli.tuning_run import Site, Timed, knob_of
from aotpack.cli.tuning_search import BUSY, SHORT, Effort, Known, search

Cost = Callable[[int], float]


class MadeUp:
    """Calls of kernels by site: each costs what its function says of its way, and `noise` of that more at most."""

    def __init__(
        self, costs: Mapping[int, Cost], *, noise: float = 0.0, true: Mapping[int, Cost] | None = None
    ) -> None:
        self._costs = costs
        self._true = costs if true is None else true
        self._random = random.Random(7)
        self._noise = noise
        self.sites: dict[int, Site] = {}
        self.calls = 0
        self.tried: dict[int, set[int]] = {site: set() for site in costs}

    seconds = 0.0  # that a call takes
    clock = 0.0

    def find_sites(self) -> None:
        self.sites = {number: Site(number, "kernel", (number,), "target", (4, 3, 1, 2)) for number in self._costs}

    def record(self, choices: Mapping[int, int]) -> Timed:
        self.clock += self.seconds
        self.calls += 1
        spent = {}
        for site, cost in self._costs.items():
            self.tried[site].add(choices.get(site, 0))
            spent[site] = cost(choices.get(site, 0)) * self._more()
        return Timed(sum(spent.values()), spent)

    def time(self, choices: Mapping[int, int]) -> float:
        return sum(cost(choices.get(site, 0)) * self._more() for site, cost in self._true.items())

    def _more(self) -> float:
        return 1 + self._noise * self._random.random()


def found(runs: MadeUp, *, threads: int = 2, known: Mapping[int, Known] | None = None) -> tuning_search.Search:
    return search(runs, Effort(60.0, rounds=12), known=known or {}, threads=threads)  # type: ignore[arg-type]


def test_turns_are_every_position_of_every_knob() -> None:
    site = Site(1, "kernel", (), "target", (4, 3, 1, 2, 0))
    assert [hex(turn) for turn in site.turns] == ["0x1", "0x2", "0x3", "0x10", "0x20", "0x1000"]
    assert [knob_of(turn) for turn in site.turns] == [0, 0, 0, 1, 1, 3]


def test_the_fastest_way_of_each_site_is_taken() -> None:
    runs = MadeUp({1: lambda way: 0.8 if way == 0x2 else 1.0, 2: lambda way: 0.5 if way == 0x10 else 2.0})
    result = found(runs)
    assert {site: each.choice for site, each in result.found.items()} == {1: 0x2, 2: 0x10}
    assert result.found[2].speedup == pytest.approx(4.0)
    assert (result.before, result.after) == (pytest.approx(3.0), pytest.approx(1.3))
    assert result.problem is None


def test_what_knobs_bring_together_is_tried() -> None:
    runs = MadeUp({1: lambda way: 1.0 * (0.8 if way & 15 == 2 else 1) * (0.7 if way >> 4 & 15 == 1 else 1)})
    assert found(runs).found[1].choice == 0x12
    # Each helps, both together do not.
    runs = MadeUp({1: lambda way: {0x2: 0.8, 0x10: 0.7}.get(way, 1.0)})
    assert found(runs).found[1].choice == 0x10
    assert 0x12 in runs.tried[1]


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_noise_is_no_gain(noise: float) -> None:
    result = found(MadeUp({site: lambda way: 1.0 for site in range(40)}, noise=noise))
    assert result.found == {}
    assert result.problem in (None, "calls as a whole are not faster with what was found")


def test_a_gain_is_found_in_noise() -> None:
    result = found(MadeUp({1: lambda way: 0.6 if way == 3 else 1.0, 2: lambda way: 1.0}, noise=0.2))
    assert {site: each.choice for site, each in result.found.items()} == {1: 3}


def test_little_is_not_enough() -> None:
    assert found(MadeUp({1: lambda way: 0.98 if way else 1.0})).found == {}


def test_small_sites_are_left_alone() -> None:
    runs = MadeUp({1: lambda way: 1.0, 2: lambda way: 0.0001 if way else 0.001})
    assert found(runs).found == {}
    assert runs.tried[2] == {0}


def test_calls_as_a_whole_must_be_faster() -> None:
    seems, true = {1: lambda way: 0.5 if way else 1.0}, {1: lambda way: 1.5 if way else 1.0}
    result = found(MadeUp(seems, true=true))
    assert result.found == {}
    assert "calls as a whole" in str(result.problem)


def test_a_busy_machine() -> None:
    wild = random.Random(3)
    runs = MadeUp({1: lambda way: (0.5 if way else 1.0) * wild.choice([1, 1, 10, 12, 14])})
    result = found(runs)
    assert (result.found, result.problem) == ({}, BUSY)


def test_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = MadeUp({1: lambda way: 0.5 if way == 2 else 1.0})
    runs.seconds = 0.02
    # Another process must not take of the time.
    monkeypatch.setattr(tuning_search, "time", SimpleNamespace(perf_counter=lambda: runs.clock))
    # Room for some of the ways: the first position of each knob.
    result = search(runs, Effort(0.9), known={}, threads=1)  # type: ignore[arg-type]
    assert runs.clock < 1.0
    assert runs.tried[1] >= {0, 0x1, 0x10, 0x1000}
    assert result.problem is None
    # Room for none.
    runs.calls = 0
    result = search(runs, Effort(0.2), known={}, threads=1)  # type: ignore[arg-type]
    assert (result.found, result.problem, result.measured) == ({}, SHORT, ())
    assert runs.calls <= 2


def test_what_is_known_is_not_tried() -> None:
    runs = MadeUp({1: lambda way: 0.5 if way == 2 else 1.0, 2: lambda way: 0.5 if way == 2 else 1.0})
    result = found(runs, known={1: Known(2, 1.9), 2: Known(0, 1.0), 9: Known(3, 2.0)})
    assert {site: each.choice for site, each in result.found.items()} == {1: 2}
    assert result.found[1].speedup == 1.9
    assert result.measured == ()
    assert runs.tried[2] == {0}
