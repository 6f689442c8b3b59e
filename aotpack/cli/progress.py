"""The phases of a build on stderr: the current phase, and the duration of each."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from aotpack.cli.common import format_seconds


class Phases:
    """Called with (phase, None, detail) when a phase begins or moves on, and (phase, seconds, detail) when it ends.

    Calls `check` first each time: what that raises ends the build.
    """

    def __init__(self, console: Console, check: Callable[[], None] = lambda: None) -> None:
        self._console = console
        self._check = check
        # Show a spinner only on a terminal.
        self._status: Status | None = console.status("") if console.is_terminal else None
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, phase: str, seconds: float | None, detail: str) -> None:
        self._check()
        if seconds is None:
            if self._status:
                self._status.update(Text.assemble(phase, " ", (detail, "dim")))
            return
        # A phase that runs once per target reports its sum.
        own = seconds - self.seconds.get(phase, 0.0)
        self.seconds[phase] = seconds
        self._console.print(f"  {phase:<10}{format_seconds(own):>10}  {detail}", soft_wrap=True)
