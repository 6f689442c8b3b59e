"""An archive of several stages becomes a folder: an archive for each, and a plan of what they hand to each other."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive.constants import layout_constants
from aotpack.archive.files import sync_folder
from aotpack.archive.folders import check_free, staged_folder
from aotpack.archive.manifest import Entry, Implementation, Manifest, Reference, Source, Step, Variant
from aotpack.archive.reader import ArchiveReader
from aotpack.archive.renumber import renumbered
from aotpack.archive.stage_entry import stage_entry
from aotpack.archive.stages import StagePlan, StageRecord, ValueSource
from aotpack.archive.writer import FileSource, write_archive
from aotpack.errors import EntryNotFoundError, MissingWeightsError, PartitionError


@dataclass(frozen=True)
class Estimate:
    """What is known of a stage: its memory in bytes, and its latency in seconds."""

    memory_bytes: int
    seconds: float


def split_archive(
    archive: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    entry: str | None = None,
    estimates: Sequence[Estimate] | None = None,
) -> StagePlan:
    """Writes each stage of an entry as an archive of its own, `stage0.aotpack` and so on, and `stages.json`.

    Needs neither torch nor a compiler, and runs nothing of the archive. The stages have the modules of the archive, so
    they return the same results bit for bit. Their weights are frozen, and they have no example calls.

    Args:
        archive: an archive that was built with a partitioning.
        folder: to create; an empty folder may be there.
        entry: the entry; default: the only one with several stages.
        estimates: of each stage, for the plan.

    Raises:
        PartitionError: the entry has one stage or several variants, its targets are divided differently, or several
            stages use the same state.
        EntryNotFoundError: the archive has no such entry.
        MissingWeightsError: the archive is code-only.
        ArchiveError: the archive cannot be read, or is damaged.
        BuildError: there is something at `folder` already, or its parent does not exist.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    check_free(folder)
    with ArchiveReader(archive) as reader:
        manifest = reader.manifest
        if manifest.absent:
            raise MissingWeightsError(
                f"{archive}: the archive is code-only, so its stages would be too",
                hint="add weights with `aotpack pack` first",
            )
        source = _entry(manifest, entry, archive)
        variant = _only_variant(source)
        first = variant.implementations[0]
        _check_state(manifest, variant)
        if estimates is not None and len(estimates) != len(first.steps):
            raise ValueError(f"there are {len(first.steps)} stages, got {len(estimates)} estimates")
        reader.verify()
        with staged_folder(folder) as room:
            records = [
                _write_stage(reader, source, variant, index, room, estimates[index] if estimates else None)
                for index in range(len(first.steps))
            ]
            plan = _plan(manifest, source, first, records)
            plan.write(room)
            os.replace(room, folder)
    sync_folder(folder.parent)
    return plan


def _entry(manifest: Manifest, name: str | None, archive: str | os.PathLike[str]) -> Entry:
    if name is not None:
        found = manifest.entry(name)
        if found is None:
            raise EntryNotFoundError(f"the archive has no entry {name!r}")
        return found
    several = [entry for entry in manifest.entries if _stages(entry) > 1]
    if len(several) != 1:
        what = "no entry has" if not several else f"{len(several)} entries have"
        hint = "build it with a partitioning" if not several else "choose one with --entry (entry=)"
        raise PartitionError(f"{archive}: {what} several stages", hint=hint)
    return several[0]


def _stages(entry: Entry) -> int:
    return max(len(each.steps) for variant in entry.variants for each in variant.implementations)


def _only_variant(entry: Entry) -> Variant:
    if len(entry.variants) > 1:
        raise PartitionError(
            f"the entry {entry.name!r} has {len(entry.variants)} variants, which are divided each in its own way",
            hint="build an archive without variants",
        )
    (variant,) = entry.variants
    if variant.same:
        raise PartitionError(
            f"the entry {entry.name!r} is for inputs that are one tensor, which its stages are not called with",
            hint="build an archive without variants",
        )
    first, *others = variant.implementations
    if len(first.steps) < 2:
        raise PartitionError(f"the entry {entry.name!r} has one stage", hint="build it with a partitioning")
    for each in variant.implementations:
        if any(step.device is None for step in each.steps):
            raise PartitionError(f"the entry {entry.name!r} has steps on the host besides its stages on devices")
    for other in others:
        if other.values != first.values or _edges(other) != _edges(first):
            raise PartitionError(
                f"the targets {first.target} and {other.target} of the entry {entry.name!r} are divided differently",
                hint="build an archive for one target",
            )
    return variant


def _edges(implementation: Implementation) -> list[tuple[object, ...]]:
    return [(step.inputs, step.outputs, step.device) for step in implementation.steps]


def _check_state(manifest: Manifest, variant: Variant) -> None:
    for implementation in variant.implementations:
        stages: dict[int, int] = {}
        for index, step in enumerate(implementation.steps):
            for constant in step.module.constants:
                record = manifest.constants[constant]
                if record.mutated and stages.setdefault(constant, index) != index:
                    raise PartitionError(
                        f"stages {stages[constant]} and {index} use the state {record.name!r}, which would be two then"
                    )


def _write_stage(
    reader: ArchiveReader, source: Entry, variant: Variant, index: int, room: Path, estimate: Estimate | None
) -> StageRecord:
    manifest = reader.manifest
    steps = [implementation.steps[index] for implementation in variant.implementations]
    constants = sorted({constant for step in steps for constant in step.module.constants})
    numbers = {constant: i for i, constant in enumerate(constants)}
    made = stage_entry(source, variant, index)
    implementations = tuple(
        Implementation(implementation.target, (_alone(step, made.inputs_of_step, numbers),))
        for implementation, step in zip(variant.implementations, steps, strict=True)
    )
    entry = dataclasses.replace(
        made.entry, variants=(dataclasses.replace(made.variant, implementations=implementations),)
    )
    device = manifest.devices[steps[0].device or 0]
    part = Manifest(
        name=manifest.name,
        producer=manifest.producer,
        constants=tuple(manifest.constants[constant] for constant in constants),
        entries=(entry,),
        devices=(device,),
    )
    layout = layout_constants(((numbers[each], reader.constant(each)) for each in constants), folder=room)
    files = sorted({step.module.file for step in steps} | {a.file for step in steps for a in step.module.assets})
    places = {file: len(layout.segments) + i for i, file in enumerate(files)}
    sources: list[FileSource] = [*layout.segments, *(reader.source(file) for file in files)]
    name = f"stage{index}.aotpack"
    write_archive(room / name, renumbered(part, layout.placements, places), sources)
    return StageRecord(
        archive=name,
        device=device,
        inputs=(),
        outputs=tuple(value.name for value in entry.outputs),
        mutated=tuple(value.name for value in entry.inputs if value.mutated),
        weights_bytes=sum(manifest.constants[constant].nbytes for constant in constants),
        memory_bytes=estimate.memory_bytes if estimate else None,
        seconds=estimate.seconds if estimate else None,
    )


def _alone(step: Step, inputs: Sequence[int], numbers: dict[int, int]) -> Step:
    """The step as the only one of an entry; `inputs` are the indices of those that it reads."""
    module = dataclasses.replace(step.module, constants=tuple(numbers[each] for each in step.module.constants))
    return Step(
        module,
        tuple(Reference(Source.INPUT, index) for index in inputs),
        tuple(Reference(Source.OUTPUT, index) for index in range(len(step.outputs))),
    )


def _plan(
    manifest: Manifest, source: Entry, implementation: Implementation, records: Sequence[StageRecord]
) -> StagePlan:
    origin = {
        Reference(Source.INPUT, index): ValueSource(None, value.name) for index, value in enumerate(source.inputs)
    }
    stages = []
    for index, (step, record) in enumerate(zip(implementation.steps, records, strict=True)):
        inputs = tuple(origin[reference] for reference in dict.fromkeys(step.inputs))
        stages.append(dataclasses.replace(record, inputs=inputs))
        origin.update(
            (reference, ValueSource(index, name)) for reference, name in zip(step.outputs, record.outputs, strict=True)
        )
    return StagePlan(
        model=manifest.name,
        entry=source.name,
        signature=str(source.signature),
        inputs=tuple(value.name for value in source.inputs),
        outputs=tuple(value.name for value in source.outputs),
        results=tuple(origin[Reference(Source.OUTPUT, index)] for index in range(len(source.outputs))),
        stages=tuple(stages),
    )
