"""Room for frames: calls at the border of a chunk of Python's stack cost no page."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable

from aotpack.building.frames import roomy, with_room

DEPTH, CALLS = 400, 1000


def leaf() -> None:
    pass


def calls_at_every_depth(depth: int = 0) -> None:
    for _ in range(CALLS):
        leaf()
    if depth < DEPTH:
        calls_at_every_depth(depth + 1)


def page_faults(call: Callable[[], object]) -> int:
    """In a thread of its own, whose stack of frames begins with a chunk of its own."""
    faults: list[int] = []

    def count() -> None:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        call()
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    return faults[0]


def test_calls_at_the_border_of_a_chunk_map_no_memory() -> None:
    calls_at_every_depth()
    # Some depth of these is at a border.
    assert page_faults(calls_at_every_depth) > CALLS
    assert page_faults(lambda: with_room(calls_at_every_depth)) < CALLS / 2


def test_a_roomy_function_is_called_as_it_is() -> None:
    @roomy
    def divide(a: int, b: int, *, digits: int = 0) -> float:
        """A docstring."""
        return round(a / b, digits)

    assert divide(1, b=8, digits=2) == 0.12
    assert (divide.__name__, divide.__doc__) == ("divide", "A docstring.")
