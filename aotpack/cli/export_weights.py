"""`aotpack export-weights`: the trained weights of a checkpoint for an archive, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, reports_errors


@reports_errors
def export_weights(
    archive: ArchivePath,
    state: Annotated[
        Path, typer.Argument(metavar="STATE", help="A .safetensors file that `Context.save_state` has written.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The .safetensors file to write.")],
    as_json: AsJson = False,
) -> None:
    """Writes the weights of an archive for inference, with the values that a training archive has learned.

    Tensors of the state that have names of weights replace these; the other weights keep the values of the archive.
    Other tensors of the state, such as those of the optimizer, are ignored.

    **Examples**

        aotpack export-weights model.aotpack checkpoint.safetensors -o weights.safetensors

        aotpack pack model.aotpack --weights weights.safetensors -o trained.aotpack

    The archive must be updatable or, if the state has all weights, code-only. `Model.update_weights` accepts the file
    too, and also the context that trains.
    """
    from aotpack.cli.common import format_bytes, print_json, stderr_console
    from aotpack.cli.signals import terminated_in_order
    from aotpack.runtime.packing import export_weights as export

    with terminated_in_order():
        report = export(archive, state, output)
    if as_json:
        print_json(
            {
                "archive": archive,
                "state": state,
                "output": report.path,
                "bytes": report.size,
                "trained": report.trained,
                "kept": report.kept,
                "unused": report.unused,
                "ignored": report.ignored,
            }
        )
        return
    text = f"{report.path}: {format_bytes(report.size)}, {len(report.trained)} trained"
    if report.kept:
        text += f", {len(report.kept)} from the archive"
    if report.unused:
        text += f", {len(report.unused)} that nothing depends on (zeros)"
    if report.ignored:
        text += f"; {len(report.ignored)} other tensors of the state ignored"
    stderr_console().print(text, soft_wrap=True, markup=False, highlight=False)
