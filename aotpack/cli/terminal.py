"""The console of the commands: text from files must not control the terminal.

Names in an archive, and messages about them, may contain escape sequences, right-to-left text or markup. All output of
the commands goes through a `SafeConsole`, which prints them as plain text.
"""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Control characters, invisible ones that reorder or hide text, halves of surrogate pairs, line separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    r"""The text with control characters escaped, such as `\x1b`; line breaks and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _UNSAFE else _escape(c) for c in text)


def _escape(character: str) -> str:
    return (
        character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else f"\\x{ord(character):02x}"
    )


def make_table(*columns: str) -> Table:
    """A table without lines, whose columns break long texts."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


class SafeConsole(Console):
    """A console on which strings are plain text: no markup, no emoji codes, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> None:
        """Lets the command end (`reports_errors`); rich would end the process."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render_str(self, text: str, **options: Any) -> Text:
        """The string as text of this console."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, with control characters escaped."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
