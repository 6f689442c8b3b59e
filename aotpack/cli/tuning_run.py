"""Calls whose kernels go given ways, and how long each kernel took: what tuning measures."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotpack.runtime import Context, Entry

# A choice has eight fields of four bits, of which each is a knob of the kernel; position 0 is the kernel's own.
_BITS = 4


@dataclass(frozen=True)
class Site:
    """All calls of a kernel with the same sizes.

    Attributes:
        number: what the module calls it.
        kernel, numbers: the kernel and its sizes.
        target: of the module.
        positions: how many positions each knob of the kernel has.
    """

    number: int
    kernel: str
    numbers: tuple[int, ...]
    target: str
    positions: tuple[int, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """Every position of every knob by itself, but for position 0."""
        return tuple(at << (_BITS * knob) for knob, count in enumerate(self.positions) for at in range(1, count))


def knob_of(choice: int) -> int:
    """The knob that a choice of `Site.turns` turns."""
    return (choice.bit_length() - 1) // _BITS


@dataclass(frozen=True)
class Timed:
    """One call: its seconds, and those of each site, of all its kernels together."""

    seconds: float
    sites: Mapping[int, float]


class Runs:
    """Calls of an entry with the same inputs, in a context of their own."""

    def __init__(self, context: Context, entry: Entry, inputs: Sequence[Any]) -> None:
        self._context = context
        self._entry = entry
        self._inputs = list(inputs)
        self.sites: dict[int, Site] = {}

    def find_sites(self) -> None:
        """Calls once, and notes the sites that kernels report.

        Raises:
            AotpackError: the call fails.
        """
        self._context._set_choices([], True)
        self._entry.run(self._inputs)
        for number, kernel, target, numbers, _, positions, _ in self._context._sites():
            self.sites[number] = Site(number, kernel, tuple(numbers), target, tuple(positions))

    def record(self, choices: Mapping[int, int]) -> Timed:
        """A call with these ways, by site; others go as they choose."""
        self._context._set_choices([(site, choice) for site, choice in choices.items() if choice], True)
        began = time.perf_counter()
        self._entry.run(self._inputs)
        seconds = time.perf_counter() - began
        spent: dict[int, float] = defaultdict(float)
        for number, _, _, _, _, _, nanoseconds in self._context._sites():
            spent[number] += nanoseconds * 1e-9
        return Timed(seconds, spent)

    def time(self, choices: Mapping[int, int]) -> float:
        """The seconds of a call with these ways, of which nothing is recorded, as calls of users are."""
        self._context._set_choices([(site, choice) for site, choice in choices.items() if choice], False)
        began = time.perf_counter()
        self._entry.run(self._inputs)
        return time.perf_counter() - began
