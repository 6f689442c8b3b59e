"""`aotpack pack`: an archive with new weights, without torch and without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, Threads, reports_errors


@reports_errors
def pack(
    archive: ArchivePath,
    weights: Annotated[
        list[Path],
        typer.Option(
            "--weights",
            metavar="FILE",
            help="A .safetensors file or ….safetensors.index.json. Repeat the option for several files.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to write.")],
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Writes an archive with new weights, as if the model had been built with them.

    Build the code once, with `--code-only` or `--updatable`, on a machine with torch and a compiler. Pack weights
    wherever they are: this command needs neither, and no GPU, also for archives that run on one. Weights that are
    folded or packed for kernels are computed by a module in the archive, on the CPU.

    **Examples**

        aotpack build model.py --code-only -o code.aotpack

        aotpack pack code.aotpack --weights model.safetensors -o model.aotpack

        aotpack pack code.aotpack --weights model.safetensors.index.json -o model.aotpack --json

    The files must contain every tensor of the model's state dict, with its dtype and shape, and no others; all
    differences are listed. Of tied weights one name is enough. The same archive and weights make the same bytes. The
    result has no example calls, because their answers are those of the old weights.
    """
    from aotpack.cli.common import format_bytes, print_json, stderr_console
    from aotpack.cli.progress import Phases
    from aotpack.cli.signals import terminated_in_order
    from aotpack.runtime.packing import pack_weights

    console = stderr_console()
    with terminated_in_order() as interruption, Phases(console, interruption.check) as phases:
        report = pack_weights(
            archive,
            weights[0] if len(weights) == 1 else weights,
            output,
            num_threads=threads or 0,
            progress=phases,
        )
    if as_json:
        print_json(
            {
                "archive": archive,
                "output": report.path,
                "bytes": report.size,
                "tensors": report.tensors,
                "derived": report.derived,
                "seconds": report.seconds,
            }
        )
    else:
        console.print(
            f"{report.path}: {format_bytes(report.size)}, {report.tensors} tensors, {report.derived} derived from them",
            soft_wrap=True,
        )
