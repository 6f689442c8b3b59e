"""What a call recorded: when it, its steps and the kernels of its modules began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# Of the C interface: AOTPACK_PROFILE_ALL.
_ALL = 0xFFFFFFFF


class ProfileEvent(NamedTuple):
    """A part of a call. Times are in seconds since the call began.

    Attributes:
        step: index of the step in the implementation that ran; None: the whole call.
        kernel: index in the `kernels` of the step's module; None: the whole step, or the whole call.
        begin, end: when it began and ended.
    """

    step: int | None
    kernel: int | None
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return round(self.end - self.begin, 9)


def events_of(raw: Iterable[tuple[int, int, int, int]]) -> list[ProfileEvent]:
    """The events as the native module has them: with nanoseconds, and a number for all steps or kernels."""
    return [
        ProfileEvent(None if step == _ALL else step, None if kernel == _ALL else kernel, begin / 1e9, end / 1e9)
        for step, kernel, begin, end in raw
    ]
