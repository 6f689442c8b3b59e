"""Memory for the frames of Python functions.

Python keeps the frames of a thread in chunks of 16 KiB. It maps another chunk when a call does not fit the last one,
and unmaps it when that call returns. A function at such a border that calls others in a loop costs system calls, and a
page to clear, each time. Captures and builds, whose stacks are deep, would spend a fifth of their time so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Of 8 bytes. Python doubles the size of a chunk until the frame that needs it fits: what is left, about as much again,
# is room for some thousand frames. Pages that none of them reaches are never touched.
_SLOTS = 1 << 17


def with_room(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `call` returns. Its frames, and those of what it calls, share one large chunk."""
    return call(*args, **kwargs)


# Python takes it that this function needs so large a stack, and finds room for it.
with_room.__code__ = with_room.__code__.replace(co_stacksize=_SLOTS)


def roomy(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, called by `with_room`."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return with_room(function, *args, **kwargs)

    return run
