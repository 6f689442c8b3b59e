"""The phases of a build: their durations, and the progress callback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aotpack.export.diagnostics.internal_errors import callers_own, reported

Progress = Callable[[str, float | None, str], None]


@dataclass
class Clock:
    """Measures phases and invokes `progress` when they begin and end."""

    progress: Progress | None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        start = time.perf_counter()
        self._tell(name, None, detail)
        with reported(f"{name} {detail}".rstrip()):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self._tell(name, self.seconds[name], detail)

    def unit(self, name: str) -> None:
        """One source was compiled."""
        self._tell("compile", None, name)

    def _tell(self, name: str, seconds: float | None, detail: str) -> None:
        if self.progress is not None:
            with callers_own():
                self.progress(name, seconds, detail)
