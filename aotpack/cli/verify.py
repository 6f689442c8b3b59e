"""`aotpack verify`: checks every byte against its hash, and every golden against eager's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from aotpack.cli.common import ArchivePath, AsJson, Threads, reports_errors
from aotpack.cli.devices import DeviceName, load_on

if TYPE_CHECKING:
    from aotpack.archive import ArchiveReader, Entry
    from aotpack.runtime import Entry as RunnableEntry


@reports_errors
def verify(archive: ArchivePath, threads: Threads = None, device: DeviceName = None, as_json: AsJson = False) -> None:
    """Checks the integrity of an archive and the outputs of its example calls.

    First compares every byte with the hashes. Then runs the archive's example calls on the CPU, or on `--device`, and
    compares their outputs with those of eager PyTorch at build time. The error of an output is the greatest difference,
    relative to the output's greatest magnitude. Does not need torch.

    **Examples**

        aotpack verify model.aotpack
        aotpack verify model.aotpack --json
        aotpack verify model.aotpack --device cuda:0

    If the archive has no module for this machine's CPU, or no weights, only the hashes are checked, with a warning. If
    it cannot run on the given `--device`, this is an error.
    """
    from aotpack.archive import ArchiveReader
    from aotpack.cli.common import format_bytes, print_json, stderr_console, stdout_console
    from aotpack.errors import MissingWeightsError, UnsupportedTargetError

    results: list[dict[str, Any]] = []
    skipped: str | None = None
    hint: str | None = None
    target: str | None = None
    used: str | None = None
    with ArchiveReader(archive) as reader:
        size = reader.verify()
        try:
            # The runtime's own, independent check of every byte.
            model = load_on(archive, device, threads=threads, verify="full")
        except (UnsupportedTargetError, MissingWeightsError) as error:
            if device is not None:
                raise
            skipped, hint = str(error), error.hint
        else:
            target, used = model.target, model.device
            for entry in reader.manifest.entries:
                results += _check_entry(reader, entry, model.entry(entry.name))
    passed = all(item["ok"] for item in results)
    if as_json:
        print_json(
            {
                "archive": archive,
                "ok": passed,
                "bytes": size,
                "target": target,
                "device": used,
                "outputs": results,
                "skipped": skipped,
            }
        )
    else:
        from rich.table import Table
        from rich.text import Text

        console = stdout_console()
        console.print(Text.assemble(("✓", "green"), f" {format_bytes(size)}: all hashes match"))
        if results:
            table = Table(box=None, pad_edge=False, header_style="bold")
            for column in ("", "entry", "golden", "output", "error", "tolerance"):
                table.add_column(column)
            for item in results:
                mark = Text("✓", style="green") if item["ok"] else Text("✗", style="red")
                error_text = item["problem"] or f"{item['error']:.2e}"
                table.add_row(
                    mark, item["entry"], str(item["golden"]), item["output"], error_text, f"{item['tolerance']:.0e}"
                )
            console.print(table)
    console = stderr_console()
    if skipped:
        console.print("warning:", style="bold yellow", end=" ")
        console.print(f"the example calls were not run: {skipped}", soft_wrap=True)
        if hint:
            console.print("hint:", style="bold cyan", end=" ")
            console.print(hint, soft_wrap=True)
    elif not results:
        console.print("warning:", style="bold yellow", end=" ")
        console.print("the archive contains no example calls: no outputs were compared", soft_wrap=True)
    if not passed:
        console.print("error:", style="bold red", end=" ")
        console.print("an output differs from eager PyTorch's")
        raise typer.Exit(1)


def _check_entry(reader: ArchiveReader, entry: Entry, runner: RunnableEntry) -> list[dict[str, Any]]:
    """One result per golden and output."""
    from aotpack.cli.goldens import run_golden

    results = []
    for number, golden in enumerate(entry.goldens):
        found = run_golden(runner, golden, entry.outputs, lambda t: reader.read(t.file, t.offset, t.nbytes))
        results += [
            {
                "entry": entry.name,
                "golden": number,
                "output": output.output,
                "error": output.error,
                "tolerance": output.tolerance,
                "problem": output.problem,
                "ok": output.ok,
            }
            for output in found.outputs
        ]
    return results
