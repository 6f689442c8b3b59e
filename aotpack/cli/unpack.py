"""`aotpack unpack`: an archive as a folder of sources, modules and weights, without torch and without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.common import ArchivePath, AsJson, reports_errors


@reports_errors
def unpack(
    archive: ArchivePath,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to create.")],
    as_json: AsJson = False,
) -> None:
    """Writes an archive as a folder that can be read, edited, built with CMake and packed again.

    The folder contains the generated C++ of each module with all headers that it includes, the graphs, the compiled
    modules, the weights and the manifest. `README.md` in it describes the files. CMake needs neither torch nor aotpack.

    **Examples**

        aotpack build model.py --sources -o model.aotpack

        aotpack unpack model.aotpack -o model

        cmake -S model -B model/build && cmake --build model/build -j4

        aotpack pack model -o edited.aotpack

    The archive must have been built with `--sources`. Every byte of it is checked first. An existing folder must be
    empty.
    """
    from aotpack.cli.common import print_json, stderr_console
    from aotpack.cli.signals import terminated_in_order
    from aotpack.runtime.packing import unpack

    with terminated_in_order():
        report = unpack(archive, output)
    if as_json:
        print_json(
            {
                "archive": archive,
                "output": report.path,
                "files": report.files,
                "sources": report.sources,
                "modules": report.modules,
            }
        )
        return
    modules = f"{len(report.modules)} module{'s' if len(report.modules) != 1 else ''}"
    stderr_console().print(
        f"{report.path}: {report.files} files, {report.sources} of them sources of {modules}", soft_wrap=True
    )
