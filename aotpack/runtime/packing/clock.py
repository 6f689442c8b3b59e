"""The phases of packing, and how long they take."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[str, float | None, str], None]


class Clock:
    """One phase after another: `seconds` has those that have ended."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._phase = ""
        self._start = 0.0

    def begin(self, phase: str) -> None:
        """Ends the phase before, and begins one."""
        self.end()
        self._phase, self._start = phase, time.perf_counter()
        if self._progress is not None:
            self._progress(phase, None, "")

    def end(self) -> None:
        """Ends the last phase."""
        if not self._phase:
            return
        self.seconds[self._phase] = time.perf_counter() - self._start
        if self._progress is not None:
            self._progress(self._phase, self.seconds[self._phase], "")
        self._phase = ""
