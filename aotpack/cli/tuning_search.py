"""Finds the ways in which the kernels of an entry go fastest.

Each call of the entry tries a different way at every site at once, so that kernels run with the caches as calls of
users leave them, and the cost is calls times ways, whatever the number of sites. Ways take turns: what else the machine
does hits all of them alike. A way is taken where it is faster than the kernel's own by more than the noise, and only if
calls as a whole are faster then.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from aotpack.cli.tuning_run import Runs, Site, knob_of
from aotpack.costs.samples import is_busy, noise, quiet

# A way must save this share of a site's time at least, and this many times the noise.
_MARGIN = 0.03
_NOISES = 2.0
# Below this share of a call, a site is left alone: no way would be felt.
_LEAST_SHARE = 0.002
_LEAST_ROUNDS = 4
_LEAST_ROUNDS_AGAIN = 3
# Fewer ways are not worth a search.
_LEAST_WAYS = 2
BUSY = "the machine is busy: calls of several threads vary too much to compare ways"
SHORT = "a call takes too long for the time that there is to measure"


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    Attributes:
        seconds: about how long to measure.
        rounds: how often each way is tried, at most.
    """

    seconds: float
    rounds: int = 24


@dataclass(frozen=True)
class Found:
    """The best way of a site, and how many times faster than the kernel's own it is. `seconds`: in a call, with the
    kernel's own way; None: it was not measured now.
    """

    site: Site
    choice: int
    speedup: float
    seconds: float | None


class Known(NamedTuple):
    """What was found before: a way, and its speedup."""

    choice: int
    speedup: float


@dataclass
class Search:
    """What a search found.

    Attributes:
        found: by number of the site; those left out go as they choose.
        sites: all sites of the entry.
        measured: those of which ways were tried now.
        before, after: seconds of a call without and with what was found.
        rounds: how often each way was tried.
        problem: why nothing was taken, although something may be faster; None otherwise.
    """

    found: dict[int, Found] = field(default_factory=dict)
    sites: dict[int, Site] = field(default_factory=dict)
    measured: tuple[int, ...] = ()
    before: float = 0.0
    after: float = 0.0
    rounds: int = 0
    problem: str | None = None

    @property
    def saved(self) -> float:
        """Seconds of a call that the sites which were measured now save: calls as a whole vary by more than that."""
        return sum(each.seconds * (1 - 1 / each.speedup) for each in self.found.values() if each.seconds is not None)


def search(runs: Runs, effort: Effort, *, known: Mapping[int, Known], threads: int) -> Search:
    """Searches for the best ways of an entry.

    Args:
        runs: its calls.
        effort: how much to try.
        known: ways of sites that need no measuring.
        threads: in a call.

    Raises:
        AotpackError: a call fails.
    """
    until = time.perf_counter() + effort.seconds
    if not runs.sites:
        runs.find_sites()
    result = Search(sites=dict(runs.sites))
    began = time.perf_counter()
    first = [runs.record({}) for _ in range(2)]
    cost = (time.perf_counter() - began) / len(first)
    whole = min(timed.seconds for timed in first)
    spent = {site: min(timed.sites.get(site, 0.0) for timed in first) for site in runs.sites}
    open_sites = [
        site
        for number, site in runs.sites.items()
        if number not in known and site.turns and spent[number] >= _LEAST_SHARE * whole
    ]
    for number, (choice, speedup) in known.items():
        if choice and number in runs.sites:
            result.found[number] = Found(runs.sites[number], choice, speedup, None)
    # In half of the time each way runs often enough, beside the kernel's own, which has two turns.
    most = int((until - time.perf_counter()) / 2 / max(cost, 1e-9) / _LEAST_ROUNDS) - 2
    if open_sites and most < min(_LEAST_WAYS, max(len(site.turns) for site in open_sites)):
        result.problem = SHORT
    elif open_sites:
        ways = {site.number: (0, *_in_order(site)[:most]) for site in open_sites}
        samples = _try(runs, ways, effort, _LEAST_ROUNDS, until, result)
        if threads > 1 and is_busy(samples.calls):
            result.problem = BUSY
            result.found.clear()
            return result
        better = {s.number: _better(s, samples) for s in open_sites}
        combined = {number: choices for number, choices in better.items() if choices}
        if combined:
            ways = {number: (0, *choices) for number, choices in combined.items()}
            again = _try(runs, ways, effort, _LEAST_ROUNDS_AGAIN, until, result)
            for number, choices in combined.items():
                # By new samples: what was best by chance in the first ones is not in these.
                best = _best(number, choices, again)
                if best is not None:
                    result.found[number] = _found(runs.sites[number], best, again)
        result.measured = tuple(site.number for site in open_sites)
    if result.found:
        pairs = max(4, min(60, int((until - time.perf_counter()) / 2 / max(cost, 1e-9))))
        _compare(runs, {number: found.choice for number, found in result.found.items()}, pairs, result)
    return result


def _in_order(site: Site) -> list[int]:
    """The turns of a site, in which every knob has its first one before any has its second."""
    return sorted(site.turns, key=lambda choice: (choice >> (4 * knob_of(choice)), knob_of(choice)))


@dataclass
class _Samples:
    """Seconds by site and way, and those of calls in which all sites went their own way."""

    sites: dict[int, dict[int, list[float]]]
    calls: list[float]


def _try(
    runs: Runs,
    ways: Mapping[int, Sequence[int]],
    effort: Effort,
    rounds: int,
    until: float,
    result: Search,
) -> _Samples:
    """Tries ways in turns until the time is up, but at least in so many rounds. Way 0, the first of each site, has two
    turns in a round.
    """
    samples = _Samples(defaultdict(lambda: defaultdict(list)), [])
    turns = max(len(each) for each in ways.values())
    # A phase has half of what is left, so that the last one has time, too.
    began = time.perf_counter()
    deadline = began + (until - began) / 2
    for number in range(effort.rounds):
        if number >= rounds and time.perf_counter() > deadline:
            break
        for turn in (*range(turns), 0):
            # Sites with fewer ways than others go their own way in the turns that are left.
            choices = {site: each[turn] if turn < len(each) else 0 for site, each in ways.items()}
            timed = runs.record(choices)
            for site, choice in choices.items():
                if site in timed.sites:
                    samples.sites[site][choice].append(timed.sites[site])
            if turn == 0:
                samples.calls.append(timed.seconds)
        result.rounds += 1
    return samples


def _is_faster(of: Mapping[int, list[float]], choice: int) -> bool:
    own, other = of[0], of.get(choice)
    if not own or not other:
        return False
    needed = 1 - max(_MARGIN, _NOISES * noise(own))
    return quiet(other) < needed * quiet(own) and median(other) < median(own)


def _better(site: Site, samples: _Samples) -> tuple[int, ...]:
    """The fastest ways to turn one knob, and all these together."""
    of = samples.sites[site.number]
    by_knob: dict[int, int] = {}
    for choice in site.turns:
        if not _is_faster(of, choice):
            continue
        knob = knob_of(choice)
        if knob not in by_knob or quiet(of[choice]) < quiet(of[by_knob[knob]]):
            by_knob[knob] = choice
    ways = sorted(by_knob.values(), key=lambda choice: quiet(of[choice]))[:2]
    if len(by_knob) > 1:
        ways.append(sum(by_knob.values()))
    return tuple(ways)


def _best(site: int, choices: Sequence[int], samples: _Samples) -> int | None:
    of = samples.sites[site]
    faster = [choice for choice in choices if _is_faster(of, choice)]
    return min(faster, key=lambda choice: quiet(of[choice]), default=None)


def _found(site: Site, choice: int, samples: _Samples) -> Found:
    of = samples.sites[site.number]
    own, other = quiet(of[0]), quiet(of[choice])
    return Found(site, choice, own / other if other > 0 else 1.0, own)


def _compare(runs: Runs, chosen: Mapping[int, int], pairs: int, result: Search) -> None:
    """Whether calls are faster with the chosen ways; else nothing is found."""
    before: list[float] = []
    after: list[float] = []
    for number in range(pairs):
        # Both orders in turns: the second of a pair may find what the first one left in the caches.
        for choices, times in (({}, before), (chosen, after)) if number % 2 else ((chosen, after), ({}, before)):
            times.append(runs.time(choices))
    result.before, result.after = quiet(before), quiet(after)
    if result.after >= result.before or median(after) >= median(before):
        result.problem = "calls as a whole are not faster with what was found"
        result.found.clear()
