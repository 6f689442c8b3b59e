"""Packing: compiled entries and the constants that they read become an archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from aotpack.archive import (
    Constant,
    FileSource,
    Fold,
    Manifest,
    Placement,
    StagedArchive,
    Weights,
    WeightTensor,
    stage_archive,
)
from aotpack.archive.algorithms import ALGORITHMS_PATH, MeasuredAlgorithms, encode_algorithms
from aotpack.archive.fields import extent
from aotpack.archive.sources import SOURCES_PATH
from aotpack.export.backends.backend import Tools
from aotpack.export.driver.archive_files import ArchiveFiles, stem_of
from aotpack.export.driver.compiled import CompiledUnit
from aotpack.export.driver.describe import described_unit, encoded_descriptions
from aotpack.export.driver.goldens import golden_file
from aotpack.export.driver.packed_entries import EntryPacker, refuse_state_on_devices
from aotpack.export.driver.placing import PlacedConstants
from aotpack.export.driver.provenance import encoded_pass_reports, producer
from aotpack.export.driver.self_check import Example
from aotpack.export.driver.sources import encoded_sources
from aotpack.export.driver.stages import device_names
from aotpack.export.ir.units import Unit
from aotpack.export.tracing.interface import manifest_dtype
from aotpack.export.weights.constant_table import ConstantTable, Row
from aotpack.export.weights.updatable import Replaceable


def pack(
    units: Sequence[CompiledUnit],
    name: str,
    output: Path,
    *,
    placed: PlacedConstants,
    replaceable: Replaceable | None = None,
    code_only: bool = False,
    sources: bool = False,
    description: bool = True,
    measured: Sequence[MeasuredAlgorithms] = (),
    tools: Tools,
) -> Draft:
    """Brings together what the archive consists of.

    `placed` are the constants of the units. `code_only` leaves out the examples. `sources` adds what the modules are
    compiled from; `description` stores a description of the programs. `measured`: times of algorithms, if any.

    Raises:
        BuildError: the sources are too large.
    """
    table, layout = placed.table, placed.layout
    constants = tuple(_constant(name, row, layout.placements.get(key)) for name, key, row in table.named())
    tf32 = any(module.lowered.tf32 for unit in units for module in unit.modules)
    files = ArchiveFiles(list(layout.segments))
    fold = replaceable.fold if replaceable is not None else None
    calls = [unit for unit in units if unit.unit.entry is not fold]
    devices = device_names(unit.split for unit in calls)
    described = {unit.unit.label: described_unit(unit) for unit in units}
    packer = EntryPacker(table, files, devices, described)
    entries = [packer.entry(list(group)) for _, group in groupby(calls, lambda u: u.unit.name)]
    targets = dict.fromkeys(module.lowered.target for unit in calls for module in unit.modules)
    entries += [packer.fold_entry(unit, tuple(targets)) for unit in units if unit.unit.entry is fold]
    refuse_state_on_devices(constants, entries, devices)
    report = files.add(FileSource.from_bytes("reports/passes.json", encoded_pass_reports(units)))
    if sources:
        files.add(FileSource.from_bytes(SOURCES_PATH, encoded_sources(name, files.modules, tools)))
    if measured:
        files.add(FileSource.from_bytes(ALGORITHMS_PATH, encode_algorithms(measured)))
    programs = None
    if description:
        data = encoded_descriptions(calls, described)
        programs = files.add(FileSource.from_bytes("reports/programs.json.zlib", data))
    manifest = Manifest(
        name,
        producer(units, tools),
        constants,
        tuple(entries),
        report=report,
        weights=None if replaceable is None else _weights(replaceable, table),
        devices=devices,
        description=programs,
    )
    return Draft(output, manifest, files, [] if code_only else [compiled.unit for compiled in units], tf32=tf32)


def _constant(name: str, row: Row, placement: Placement | None) -> Constant:
    """The manifest's constant; without a placement, one without bytes."""
    constant = row.constant
    span = extent(constant.shape, constant.stride) * constant.dtype.itemsize
    return Constant(
        name=name,
        role=constant.info.role,
        sources=constant.info.sources,
        dtype=manifest_dtype(constant.dtype),
        shape=constant.shape,
        stride=constant.stride,
        file=placement.segment if placement else None,
        offset=placement.offset if placement else None,
        nbytes=placement.nbytes if placement else span,
        sha256=placement.sha256 if placement else None,
        mutated=constant.info.mutated,
    )


@dataclass(frozen=True)
class Draft:
    """An archive that is complete but for its goldens.

    Attributes:
        output: where it is to be.
        manifest: without files and goldens.
        files: the files so far.
        units: what it was made of, of which goldens are examples.
        tf32: whether some module multiplies float32 in TF32.
    """

    output: Path
    manifest: Manifest
    files: ArchiveFiles
    units: Sequence[Unit]
    tf32: bool = False

    def stage(self, *, goldens: bool, without: Collection[str] = ()) -> tuple[StagedArchive, list[Example]]:
        """Writes the archive to a temporary file beside the output; also the example calls that it is to answer.

        Args:
            goldens: whether the archive has the example calls.
            without: labels of units whose example it does not have nevertheless.

        Raises:
            OSError: the file cannot be written.
        """
        files = ArchiveFiles(list(self.files.sources))
        examples: list[Example] = []
        for unit in self.units:
            path = files.path(f"goldens/{stem_of(unit)}", ".bin")
            made = golden_file(unit.program, path, len(files.sources), same=unit.same, tf32=self.tf32)
            if made is None or unit.label in without:
                continue
            golden, file = made
            if goldens:
                files.add(file)
            data = None if goldens else b"".join(bytes(chunk) for chunk in file.chunks())
            open_reasons = unit.program.reference.open if unit.program.reference is not None else ()
            examples.append(Example(unit.name, unit.variant, golden, open_reasons, data))
        entries = tuple(
            dataclasses.replace(
                entry, goldens=tuple(example.golden for example in examples if goldens and example.entry == entry.name)
            )
            for entry in self.manifest.entries
        )
        manifest = dataclasses.replace(self.manifest, entries=entries)
        return stage_archive(self.output, manifest, files.sources), examples


def _weights(replaceable: Replaceable, table: ConstantTable) -> Weights:
    tensors = tuple(
        WeightTensor(t.name, manifest_dtype(t.dtype), t.shape, None if t.holder is None else table.held(*t.holder))
        for t in replaceable.tensors
    )
    if replaceable.fold is None:
        return Weights(tensors, None)
    results = tuple(table.held(*result) for result in replaceable.results)
    return Weights(tensors, Fold(replaceable.fold.signature.name, results))
