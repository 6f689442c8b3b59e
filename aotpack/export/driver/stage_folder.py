"""A program as a folder of stages: archives of their own, and the plan of what they hand to each other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aotpack.archive.split import Estimate, split_archive
from aotpack.archive.stages import StagePlan
from aotpack.errors import PartitionError
from aotpack.export.driver.build import build_archive
from aotpack.export.driver.options import BuildOptions
from aotpack.export.ir.program import Program
from aotpack.export.partition.result import Partitioning


def build_stages(
    program: Program,
    partitioning: Partitioning,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    targets: Sequence[str] | None = None,
    options: BuildOptions | None = None,
) -> StagePlan:
    """Builds each stage of a program as an archive of its own, and `stages.json` with the memory and latency of each
    that `partition` found.

    Args:
        program: a program from `aot_export` or `load_exported`.
        partitioning: what `partition` returns for it, with at least two stages.
        folder: to create; an empty folder may be there.
        name, targets, options: as for `build_archive`. The weights of the stages are frozen.

    Raises:
        PartitionError: the partitioning has one stage, or is of another program.
        BuildError: as `build_archive`; or there is something at `folder` already.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    if len(partitioning.stages) < 2:
        raise PartitionError("the partitioning has one stage", hint="build it with `build_archive`")
    # Beside the folder: the file system that has room for the stages has room for the archive.
    with tempfile.TemporaryDirectory(prefix=".stages-", dir=folder.absolute().parent) as room:
        archive = Path(room, "stages.aotpack")
        build_archive(program, archive, name=name, targets=targets, options=options, partitioning=partitioning)
        estimates = [Estimate(stage.bytes.total, stage.seconds) for stage in partitioning.stages]
        return split_archive(archive, folder, entry=program.signature.name, estimates=estimates)
