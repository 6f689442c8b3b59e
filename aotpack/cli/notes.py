"""What a capture has to say of sizes: which became constants, which ranges were narrowed, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Notes = Mapping[str, Sequence[Mapping[str, str]]]


def notes_of(programs: Sequence[Any]) -> Notes:
    """By the name of the entry: `{"subject": "input 'x', axis 1", "text": "is always 4 ..."}`, in order.

    `programs` are those of `aot_export`.
    """
    return {
        program.signature.name: [{"subject": note.subject, "text": note.text} for note in program.notes]
        for program in programs
    }


def print_notes(console: Console, notes: Notes) -> None:
    """A line `note: ...` for each, with the entry when there are several."""
    for entry, of_entry in notes.items():
        for note in of_entry:
            where = f"{entry}: " if len(notes) > 1 else ""
            console.print("note:", style="bold cyan", end=" ")
            console.print(f"{where}{note['subject']}: {note['text']}", soft_wrap=True)


def print_unchecked(console: Console, skipped: str | None, accepted: Mapping[str, str]) -> None:
    """Lines that say why the example calls were not run, or why an answer that differs from eager's was accepted."""
    lines = [f"the example call was not checked: {skipped}"] if skipped else []
    lines += [f"{entry}: the result differs from eager PyTorch's, and may: {why}" for entry, why in accepted.items()]
    for line in lines:
        console.print("note:", style="bold cyan", end=" ")
        console.print(line, soft_wrap=True)
