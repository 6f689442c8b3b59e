"""The report of the graph passes, for display: `aotpack build --explain` and `aotpack inspect --passes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_passes(console: Console, entries: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> None:
    """Prints a table per variant: each pass with its summary, followed by its changes layer by layer.

    `entries` is the content of `reports/passes.json` under "entries" (docs/format.md).
    """
    from rich.table import Table
    from rich.text import Text

    from aotpack.cli.terminal import printable

    listed = [(e, v, reports) for e, variants in entries.items() for v, reports in variants.items()]
    for entry, variant, reports in listed:
        console.print()
        console.print(
            f"passes over {entry}" if len(entries[entry]) == 1 else f"passes over {entry}, {variant}", style="bold"
        )
        if not reports:
            console.print("  no changes")
            continue
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("pass", "layer", "change"):
            table.add_column(column, overflow="fold")
        for report in reports:
            table.add_row(Text(printable(report["name"]), style="bold"), "", report["summary"])
            for change, count in _counted(report["changes"]):
                note = change["note"] + (f"  ({count} times)" if count > 1 else "")
                table.add_row("", change["layer"] or "(top)", note)
        console.print(table)


def _counted(changes: Sequence[Mapping[str, str]]) -> list[tuple[Mapping[str, str], int]]:
    """Distinct changes with their counts, in the order of first occurrence."""
    counts: dict[tuple[str, str], int] = {}
    for change in changes:
        key = (change["layer"], change["note"])
        counts[key] = counts.get(key, 0) + 1
    return [({"layer": layer, "note": note}, count) for (layer, note), count in counts.items()]
