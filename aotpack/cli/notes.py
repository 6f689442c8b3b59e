"""Notes of a capture: sizes that became constants, ranges that were narrowed, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

Notes = Mapping[str, Sequence[Mapping[str, str]]]


def notes_of(programs: Sequence[Any]) -> Notes:
    """The notes of programs by entry: `{"subject": "input 'x', axis 1", "text": "is always 4 ..."}`, in order.

    `programs` come from `aot_export`.
    """
    return {
        program.signature.name: [{"subject": note.subject, "text": note.text} for note in program.notes]
        for given in programs
        for program in (given, *given.companions)
    }


def print_notes(console: Console, notes: Notes) -> None:
    """Prints one line `note: ...` per note, with the entry if there are several."""
    for entry, of_entry in notes.items():
        for note in of_entry:
            where = f"{entry}: " if len(notes) > 1 else ""
            console.print("note:", style="bold cyan", end=" ")
            console.print(f"{where}{note['subject']}: {note['text']}", soft_wrap=True)


def print_unchecked(console: Console, skipped: str | None, accepted: Mapping[str, str]) -> None:
    """Prints why the example calls were not run, or why an output that differs from eager's was accepted."""
    lines = [f"the example call was not checked: {skipped}"] if skipped else []
    lines += [
        f"{entry}: the output differs from eager PyTorch's, which is expected: {why}" for entry, why in accepted.items()
    ]
    for line in lines:
        console.print("note:", style="bold cyan", end=" ")
        console.print(line, soft_wrap=True)


def print_code_only(console: Console, path: Path) -> None:
    """Prints how an archive without weights gets them."""
    console.print("note:", style="bold cyan", end=" ")
    console.print(f"to add the weights: aotpack pack {path} --weights FILE -o OUTPUT", soft_wrap=True)


def print_host_steps(console: Console, entries: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
    """Prints one line for each operator that modules for GPUs run on the host; equal lines of variants are one."""
    lines = {step.describe(): None for variants in entries.values() for steps in variants.values() for step in steps}
    for line in lines:
        console.print("note:", style="bold cyan", end=" ")
        console.print(line, soft_wrap=True)


def print_choices(console: Console, choices: Sequence[str]) -> None:
    """Prints one line for each autotuned Triton kernel: the configuration that the build has chosen."""
    for choice in choices:
        console.print("note:", style="bold cyan", end=" ")
        console.print(f"the configuration of {choice}", soft_wrap=True)
