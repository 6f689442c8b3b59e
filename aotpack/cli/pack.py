"""`aotpack pack`: an archive with new weights, or of an unpacked folder, without torch and without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotpack.cli.common import AsJson, Threads, reports_errors

if TYPE_CHECKING:
    from aotpack.runtime.packing import FolderReport, PackReport


@reports_errors
def pack(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="An archive, or a folder created by `aotpack unpack`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to write.")],
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="A .safetensors file or ….safetensors.index.json. Repeat the option for several files.",
        ),
    ] = None,
    goldens: Annotated[
        bool | None,
        typer.Option(
            "--goldens/--no-goldens",
            help="Keep the example calls of a folder. Default: if neither code nor weights have changed.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Writes an archive with new weights, as if the model had been built with them, or from an unpacked folder.

    Build the code once, with `--code-only` or `--updatable`, on a machine with torch and a compiler. Pack weights
    wherever they are: this command needs neither, and no GPU, also for archives that run on one. Weights that are
    folded or packed for kernels are computed by a module in the archive, on the CPU.

    **Examples**

        aotpack build model.py --code-only -o code.aotpack

        aotpack pack code.aotpack --weights model.safetensors -o model.aotpack

        aotpack pack code.aotpack --weights model.safetensors.index.json -o model.aotpack --json

        aotpack pack folder -o model.aotpack

    The files must contain every tensor of the model's state dict, with its dtype and shape, and no others; all
    differences are listed. Of tied weights one name is enough. The same archive and weights make the same bytes. The
    result has no example calls, because their answers are those of the old weights.

    A folder must be complete, and its modules built from its sources: missing, unknown and outdated files are listed.
    """
    from aotpack.cli.common import print_json, stderr_console
    from aotpack.cli.progress import Phases
    from aotpack.cli.signals import terminated_in_order
    from aotpack.runtime.packing import pack_folder, pack_weights

    is_folder = archive.is_dir()
    if is_folder and weights:
        raise typer.BadParameter(
            f"{archive} is a folder, which has its own weights: pack it first, and then other weights into the archive",
            param_hint="'--weights'",
        )
    if not is_folder and not weights:
        raise typer.BadParameter("required with an archive", param_hint="'--weights'")
    if not is_folder and goldens is not None:
        raise typer.BadParameter("only a folder can keep them", param_hint="'--goldens'")
    console = stderr_console()
    report: FolderReport | PackReport
    with terminated_in_order() as interruption, Phases(console, interruption.check) as phases:
        if is_folder:
            report = pack_folder(archive, output, goldens=goldens, progress=phases)
        else:
            files = list(weights or ())
            given = files[0] if len(files) == 1 else files
            report = pack_weights(archive, given, output, num_threads=threads or 0, progress=phases)
    about = {"archive": archive, "output": report.path, "bytes": report.size, "seconds": report.seconds}
    if as_json:
        print_json(about | _details(report))
    else:
        console.print(_text(report), soft_wrap=True)


def _details(report: FolderReport | PackReport) -> dict[str, object]:
    from aotpack.runtime.packing import PackReport

    if isinstance(report, PackReport):
        return {"tensors": report.tensors, "derived": report.derived}
    return {"changed_modules": report.modules, "changed_constants": report.constants, "goldens": report.goldens}


def _text(report: FolderReport | PackReport) -> str:
    from aotpack.cli.common import format_bytes
    from aotpack.runtime.packing import PackReport

    text = f"{report.path}: {format_bytes(report.size)}, "
    if isinstance(report, PackReport):
        return f"{text}{report.tensors} tensors, {report.derived} derived from them"
    changed = [
        f"{len(names)} {what} changed"
        for names, what in ((report.modules, "files of code"), (report.constants, "constants"))
        if names
    ]
    text += ", ".join(changed) or "unchanged"
    return f"{text}; without the example calls, which have the old answers" if report.dropped else text
