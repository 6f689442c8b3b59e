"""`aotpack split`: the stages of an archive as archives of their own, without torch and without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, EntryName, reports_errors


@reports_errors
def split(
    archive: ArchivePath,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to create.")],
    entry: EntryName = None,
    as_json: AsJson = False,
) -> None:
    """Writes each stage of an archive as an archive of its own, and what they hand to each other.

    The archive must have been built with a partitioning. Place the stages on machines with an engine of your choice:
    `stages.json` in the folder says where each stage's inputs come from. The results are those of the archive, bit for
    bit. An existing folder must be empty.

    **Examples**

        aotpack split model.aotpack -o stages

        aotpack inspect stages/stage0.aotpack
    """
    from dataclasses import asdict

    from aotpack.archive.split import split_archive
    from aotpack.cli.common import format_bytes, print_json, stderr_console
    from aotpack.cli.signals import terminated_in_order

    with terminated_in_order():
        plan = split_archive(archive, output, entry=entry)
    if as_json:
        print_json({"archive": archive, "output": output, **asdict(plan)})
        return
    console = stderr_console()
    for stage in plan.stages:
        console.print(
            f"{output / stage.archive}: device {stage.device}, {format_bytes(stage.weights_bytes)} of weights, "
            f"{len(stage.inputs)} inputs, {len(stage.outputs)} outputs",
            soft_wrap=True,
        )
