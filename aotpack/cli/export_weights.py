"""`aotpack export-weights`: the weights in a saved state, for `aotpack pack`, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, reports_errors


@reports_errors
def export_weights(
    archive: ArchivePath,
    state: Annotated[
        Path, typer.Argument(metavar="STATE", help="A .safetensors file, such as `Context.save_state` writes.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The .safetensors file to write.")],
    as_json: AsJson = False,
) -> None:
    """Writes the tensors of a saved state that are weights of an archive.

    **Examples**

        aotpack export-weights model.aotpack state.safetensors -o weights.safetensors

        aotpack pack model.aotpack --weights weights.safetensors -o trained.aotpack

    The archive must have been built with `--updatable` or `--code-only`. Tensors of the state with other names are
    ignored. Weights that the state does not have are listed: `aotpack pack` needs them from another file.
    """
    from aotpack.cli.common import print_json, stderr_console
    from aotpack.cli.signals import terminated_in_order
    from aotpack.runtime.packing import export_weights

    with terminated_in_order():
        report = export_weights(archive, state, output)
    if as_json:
        print_json(
            {
                "archive": archive,
                "output": report.path,
                "tensors": report.tensors,
                "missing": report.missing,
                "ignored": report.ignored,
            }
        )
        return
    text = f"{report.path}: {len(report.tensors)} tensors, {len(report.ignored)} of the state ignored"
    if report.missing:
        text += f"; not in the state: {', '.join(report.missing)}"
    stderr_console().print(text, soft_wrap=True, markup=False, highlight=False)
