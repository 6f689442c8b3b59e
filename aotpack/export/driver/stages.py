"""Partitionings in a build: which units are divided into stages, and the devices that these name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aotpack.archive.manifest import MAIN_DEVICE
from aotpack.errors import PartitionError
from aotpack.export.diagnostics.internal_errors import callers_own
from aotpack.export.ir.program import Program
from aotpack.export.ir.units import Unit
from aotpack.export.partition.result import Partitioning
from aotpack.export.partition.split import SplitProgram, split

Partitioner = Partitioning | Callable[[Program], Partitioning | None]
"""What users pass: a partitioning of one entry, or a function that partitions the program of each entry and variant."""


def refuse_unused(partitioner: Partitioner | None, units: Iterable[Unit]) -> None:
    """Raises PartitionError where a partitioning is of no entry of the archive, or of one with variants."""
    if not isinstance(partitioner, Partitioning):
        return
    entry = partitioner.program.signature.name
    own = [unit for unit in units if unit.name == entry]
    if not own:
        raise PartitionError(f"the partitioning is of the entry {entry!r}, which the archive does not have")
    if len(own) > 1:
        raise PartitionError(
            f"the entry {entry!r} has variants, which are partitioned one by one",
            hint="pass a function: partitioning=lambda program: partition(program, …, passes=False)",
        )


def stages_of(partitioner: Partitioner | None, program: Program) -> SplitProgram | None:
    """The stages of a program after the passes for all devices; None where it is compiled as a whole."""
    if partitioner is None:
        return None
    if isinstance(partitioner, Partitioning):
        found = partitioner if partitioner.program.signature.name == program.signature.name else None
    else:
        with callers_own():
            found = partitioner(program)
    if found is None:
        return None
    if not isinstance(found, Partitioning):
        raise PartitionError(
            f"the function for `partitioning` returned a {type(found).__name__}",
            hint="return what partition(program, …, passes=False) returns, or None",
        )
    stages = split(program, found)
    return stages if len(stages.stages) > 1 else None


def device_names(splits: Iterable[SplitProgram | None]) -> tuple[str, ...]:
    """The logical devices of an archive. What is not divided runs on the first."""
    names = [name for found in splits if found is not None for name in found.devices]
    return tuple(dict.fromkeys(names)) or (MAIN_DEVICE,)
