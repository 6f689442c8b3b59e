"""`aotpack verify`: every byte against its hash, and every golden against eager's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from aotpack.cli.common import ArchivePath, AsJson, Threads, reports_errors

if TYPE_CHECKING:
    from aotpack.archive import ArchiveReader, Entry
    from aotpack.runtime import Entry as RunnableEntry


@reports_errors
def verify(archive: ArchivePath, threads: Threads = None, as_json: AsJson = False) -> None:
    """Checks that an archive is whole and computes what the model computed.

    First every byte against the hashes, then the example calls that the archive carries: run here, and compared with
    eager PyTorch's answers from when it was built. The error of an output is the greatest difference, relative to the
    output's greatest magnitude. Needs no torch.

    **Examples**

        aotpack verify model.aotpack
        aotpack verify model.aotpack --json

    On a machine that the archive has no module for, only the hashes are checked, and a warning says so.
    """
    from aotpack.archive import ArchiveReader
    from aotpack.cli.common import format_bytes, print_json, stderr_console, stdout_console
    from aotpack.errors import UnsupportedTargetError
    from aotpack.runtime import load

    results: list[dict[str, Any]] = []
    skipped: str | None = None
    target: str | None = None
    with ArchiveReader(archive) as reader:
        size = reader.verify()
        try:
            # The runtime's own, independent check of every byte.
            model = load(archive, verify="full", num_threads=threads)
        except UnsupportedTargetError as error:
            skipped = str(error)
        else:
            target = model.target
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
                "outputs": results,
                "skipped": skipped,
            }
        )
    else:
        from rich.table import Table

        console = stdout_console()
        console.print(f"[green]✓[/] {format_bytes(size)}: every hash matches")
        if results:
            table = Table(box=None, pad_edge=False, header_style="bold")
            for column in ("", "entry", "golden", "output", "error", "tolerance"):
                table.add_column(column)
            for item in results:
                mark = "[green]✓[/]" if item["ok"] else "[red]✗[/]"
                error_text = item["problem"] or f"{item['error']:.2e}"
                table.add_row(
                    mark, item["entry"], str(item["golden"]), item["output"], error_text, f"{item['tolerance']:.0e}"
                )
            console.print(table)
    console = stderr_console()
    if skipped:
        console.print("warning:", style="bold yellow", end=" ")
        console.print(f"the goldens were not run: {skipped}", markup=False, soft_wrap=True)
    elif not results:
        console.print("warning:", style="bold yellow", end=" ")
        console.print("the archive carries no goldens: nothing was computed", soft_wrap=True)
    if not passed:
        console.print("error:", style="bold red", end=" ")
        console.print("an output is not what eager PyTorch gave")
        raise typer.Exit(1)


def _check_entry(reader: ArchiveReader, entry: Entry, runner: RunnableEntry) -> list[dict[str, Any]]:
    """One result per golden and output."""
    from aotpack.cli.arrays import golden_array, golden_inputs
    from aotpack.runtime import Context

    results = []
    for number, golden in enumerate(entry.goldens):
        # A context of its own: what an earlier call left in buffers that the model writes to does not matter.
        context = Context(runner, num_threads=runner.num_threads, seed=0)
        outputs = context.run(golden_inputs(reader, golden))
        for spec, tensor, output in zip(entry.outputs, golden.outputs, outputs, strict=True):
            # Rounding is no excuse for an integer.
            tolerance = golden.tolerance if spec.dtype.is_floating or spec.dtype.is_complex else 0.0
            problem, error = _compare(output, golden_array(reader, tensor), tensor.shape, tensor.step, spec.dtype)
            results.append(
                {
                    "entry": entry.name,
                    "golden": number,
                    "output": spec.name,
                    "error": error,
                    "tolerance": tolerance,
                    "problem": problem,
                    "ok": problem is None and error <= tolerance,
                }
            )
    return results


def _compare(output: Any, expected: Any, shape: tuple[int, ...], step: int, dtype: Any) -> tuple[str | None, float]:
    """(what is wrong beyond numbers, error relative to the greatest expected magnitude)."""
    import numpy as np

    from aotpack.cli.arrays import as_numbers

    actual = np.asarray(output)
    if actual.shape != shape:
        return f"the shape is {list(actual.shape)} instead of {list(shape)}", float("inf")
    a = as_numbers(np.ascontiguousarray(actual).reshape(-1)[::step], dtype)
    b = as_numbers(expected, dtype)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.all(same | finite):
        return "an element is not finite where eager's is, or the other way round", float("inf")
    finite &= ~same
    difference = float(np.abs(a[finite] - b[finite]).max()) if finite.any() else 0.0
    magnitudes = np.abs(b[np.isfinite(b)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    return None, difference / scale if scale else difference
