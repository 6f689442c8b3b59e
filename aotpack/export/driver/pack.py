"""Packing: compiled entries and the constants that they read become an archive."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, groupby
from pathlib import Path

import torch

from aotpack._version import __version__
from aotpack.archive import (
    Asset,
    Constant,
    Entry,
    FileSource,
    Fold,
    Implementation,
    Kernel,
    Manifest,
    Module,
    Placement,
    StagedArchive,
    Step,
    Variant,
    Weights,
    WeightTensor,
    layout_constants,
    stage_archive,
)
from aotpack.archive.description import DescribedVariant, encode_description
from aotpack.archive.fields import extent
from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.archive.sources import SOURCES_PATH
from aotpack.building import native_sources
from aotpack.errors import PartitionError
from aotpack.export.backends.backend import LoweredModule, Tools
from aotpack.export.driver.compiled import CompiledModule, CompiledUnit
from aotpack.export.driver.describe import describe, source_operators
from aotpack.export.driver.goldens import golden_file, tensor_bytes
from aotpack.export.driver.host_steps import report_of
from aotpack.export.driver.self_check import Example
from aotpack.export.driver.sources import encoded_sources
from aotpack.export.driver.stages import device_names
from aotpack.export.ir.program import PassReport, Program
from aotpack.export.ir.units import DEFAULT, Unit
from aotpack.export.tracing.interface import manifest_dtype
from aotpack.export.weights.constant_table import ConstantTable, Row
from aotpack.export.weights.identity import Identities
from aotpack.export.weights.source_module import SourceTensors
from aotpack.export.weights.updatable import Replaceable
from aotpack.targets import BY_NAME

# Memory goes back to the system after so many bytes of constants.
_TRIM_BYTES = 32 << 20


def pack(
    units: Sequence[CompiledUnit],
    name: str,
    output: Path,
    *,
    identities: Identities,
    replaceable: Replaceable | None = None,
    free_source: bool = False,
    code_only: bool = False,
    sources: bool = False,
    description: bool = True,
    tools: Tools,
) -> Draft:
    """Brings together what the archive consists of.

    Constants are computed one at a time, each once, in the order in which the units read them. `code_only` leaves out
    those that depend on replaceable weights, and the examples. `sources` adds what the modules are compiled from;
    `description` stores a description of the programs.

    Raises:
        BuildError: two modules see state in different layouts, or the sources are too large.
        OSError: a temporary file beside the output cannot be written.
    """
    modules = [(unit.unit, module.program, module.lowered) for unit in units for module in unit.modules]
    table = ConstantTable(modules, identities, replaceable)
    rows = [(key, row) for key, row in enumerate(table.rows) if not (code_only and table.is_replaced(key))]
    freed = None
    if free_source:
        freed = SourceTensors(
            [program for _, program, _ in modules],
            [(row.of, row.constant.name) for _, row in rows if row.constant.literal is None],
        )
    layout = layout_constants(_values(rows, freed), folder=output.parent)
    table.place(layout.placements)
    constants = tuple(_constant(name, row, layout.placements.get(key)) for name, key, row in table.named())
    tf32 = any(module.lowered.tf32 for unit in units for module in unit.modules)
    files = _Files(list(layout.segments))
    fold = replaceable.fold if replaceable is not None else None
    calls = [unit for unit in units if unit.unit.entry is not fold]
    devices = device_names(unit.split for unit in calls)
    described = {unit.unit.label: _described(unit) for unit in units}
    entries = [
        _entry(list(group), table, files, devices, described) for _, group in groupby(calls, lambda u: u.unit.name)
    ]
    targets = dict.fromkeys(module.lowered.target for unit in calls for module in unit.modules)
    entries += [
        _fold_entry(unit, tuple(targets), table, files, devices, described) for unit in units if unit.unit.entry is fold
    ]
    _refuse_state_on_devices(constants, entries, devices)
    report = json.dumps(_report(units), indent=1, sort_keys=True).encode() + b"\n"
    report_file = files.add(FileSource.from_bytes("reports/passes.json", report))
    if sources:
        files.add(FileSource.from_bytes(SOURCES_PATH, encoded_sources(name, files.modules, tools)))
    manifest = Manifest(
        name,
        _producer(units, tools) | ({"float32_products": "tf32"} if tf32 else {}),
        constants,
        tuple(entries),
        report=report_file,
        weights=None if replaceable is None else _weights(replaceable, table),
        devices=devices,
        description=_add_description(calls, described, files) if description else None,
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


@dataclass
class _Files:
    """The files of an archive so far.

    Attributes:
        sources: the files.
        modules: the modules by their paths; of those that share a file, the first.
        shared: the files of modules by the code that they have.
    """

    sources: list[FileSource]
    modules: dict[str, CompiledModule] = field(default_factory=dict)
    shared: dict[int, tuple[int, tuple[Asset, ...]]] = field(default_factory=dict)

    def add(self, file: FileSource) -> int:
        """The file's number."""
        self.sources.append(file)
        return len(self.sources) - 1

    def path(self, path: str, extension: str) -> str:
        """`path` with what the format does not allow replaced, and a number where that makes it equal to another."""
        plain = re.sub(r"[^A-Za-z0-9._/-]", "-", path)
        taken = {file.path for file in self.sources}
        free = (f"{plain}{suffix}{extension}" for suffix in chain([""], (f".{i}" for i in count(2))))
        return next(path for path in free if path not in taken)


def _values(rows: Iterable[tuple[int, Row]], freed: SourceTensors | None) -> Iterator[tuple[int, memoryview]]:
    packed = 0
    for key, row in rows:
        value = row.value()
        packed += value.nbytes
        yield key, tensor_bytes(value)
        del value
        if freed is not None and row.constant.literal is None:
            freed.packed(row.of, row.constant.name)
        if packed >= _TRIM_BYTES:
            packed = 0
            _return_memory()


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
    files: _Files
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
        files = _Files(list(self.files.sources))
        examples: list[Example] = []
        for unit in self.units:
            path = files.path(f"goldens/{_stem(unit)}", ".bin")
            made = golden_file(unit.program, path, len(files.sources), tf32=self.tf32)
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


def _return_memory() -> None:
    """Has glibc give freed memory back to the system, of which it keeps blocks below 32 MB."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _described(compiled: CompiledUnit) -> DescribedVariant:
    """What there is to say of a unit; `targets` has the modules of each."""
    targets: dict[str, list[tuple[Program, LoweredModule]]] = {}
    for stage in compiled.stages():
        for each in stage:
            targets.setdefault(each.lowered.target, []).append((each.program, each.lowered))
    return describe(compiled.unit.program, compiled.split, targets)


def _add_description(units: Sequence[CompiledUnit], described: Mapping[str, DescribedVariant], files: _Files) -> int:
    """Adds the file with the descriptions of these units; its number."""
    entries: dict[str, dict[str, DescribedVariant]] = {}
    for each in units:
        entries.setdefault(each.unit.name, {})[each.unit.variant] = described[each.unit.label]
    return files.add(FileSource.from_bytes("reports/programs.json.zlib", encode_description(entries)))


def _entry(
    units: Sequence[CompiledUnit],
    table: ConstantTable,
    files: _Files,
    devices: Sequence[str],
    described: Mapping[str, DescribedVariant],
) -> Entry:
    """The manifest's entry with these variants; adds its files."""
    variants = []
    for compiled in units:
        unit = compiled.unit
        implementations = _implementations(compiled, table, files, devices, described[unit.label])
        checks = tuple(
            dict.fromkeys(
                check
                for each in compiled.modules
                for check in (*unit.program.checks, *each.program.checks, *each.lowered.checks)
            )
        )
        variants.append(Variant(unit.variant, unit.guards, implementations, checks))
    signature = units[0].unit.entry.signature
    return Entry(
        name=signature.name,
        dims=signature.dims,
        inputs=signature.inputs,
        outputs=signature.outputs,
        in_spec=signature.in_spec,
        out_spec=signature.out_spec,
        variants=tuple(variants),
    )


def _implementations(
    compiled: CompiledUnit,
    table: ConstantTable,
    files: _Files,
    devices: Sequence[str],
    described: DescribedVariant,
) -> tuple[Implementation, ...]:
    """The implementation for each target; adds their files."""
    stem, split = _stem(compiled.unit), compiled.split
    if split is None:
        signature = compiled.unit.entry.signature
        sizes = len(signature.inputs), len(signature.outputs)
        return tuple(
            Implementation.of_module(_module(each, table, files, stem, described), *sizes) for each in compiled.modules
        )
    numbers = [devices.index(name) for name in split.devices]
    values = tuple(
        value if value.device is None else dataclasses.replace(value, device=numbers[value.device])
        for value in split.values
    )
    steps: dict[str, list[Step]] = {}
    for number, (stage, modules) in enumerate(zip(split.stages, compiled.stages(), strict=True), start=1):
        for each in modules:
            module = _module(each, table, files, f"{stem}.stage{number}", described)
            step = Step(module, stage.inputs, stage.outputs, devices.index(stage.device))
            steps.setdefault(each.lowered.target, []).append(step)
    return tuple(Implementation(target, tuple(found), values) for target, found in steps.items())


def _refuse_state_on_devices(constants: Sequence[Constant], entries: Sequence[Entry], devices: Sequence[str]) -> None:
    """Raises BuildError where steps on several devices read state: it is one tensor in a context."""
    places: dict[int, tuple[int | None, str]] = {}
    for entry in entries:
        for step in (step for v in entry.variants for i in v.implementations for step in i.steps):
            for index in step.module.constants:
                if not constants[index].mutated:
                    continue
                device, other = places.setdefault(index, (step.device, entry.name))
                if device != step.device:
                    names = [devices[number] if number is not None else "host" for number in (device, step.device)]
                    raise PartitionError(
                        f"the state {constants[index].name!r} is on the device {names[0]!r} in {other}, but on "
                        f"{names[1]!r} in {entry.name}",
                        hint="partition the entries so that stages with this state are on one device",
                    )


def _fold_entry(
    compiled: CompiledUnit,
    targets: Sequence[str],
    table: ConstantTable,
    files: _Files,
    devices: Sequence[str],
    described: Mapping[str, DescribedVariant],
) -> Entry:
    """The entry that folds new weights for each of the archive's targets: on the host where these are not all CPUs."""
    entry = _entry([compiled], table, files, devices, described)
    if all(BY_NAME[target].companion is None for target in targets):
        return entry
    (variant,) = entry.variants
    steps = {
        implementation.target: tuple(dataclasses.replace(step, device=None) for step in implementation.steps)
        for implementation in variant.implementations
    }
    implementations = tuple(Implementation(target, steps[BY_NAME[target].companion or target]) for target in targets)
    return dataclasses.replace(
        entry,
        inputs=tuple(dataclasses.replace(value, device=None) for value in entry.inputs),
        outputs=tuple(dataclasses.replace(value, device=None) for value in entry.outputs),
        variants=(dataclasses.replace(variant, implementations=implementations),),
    )


def _module(
    each: CompiledModule, table: ConstantTable, files: _Files, stem: str, described: DescribedVariant
) -> Module:
    """The manifest's module; adds its files. All assets of a module are in one file."""
    lowered, compiled = each.lowered, each.compiled
    # Blocks that are repeated are one module over different constants.
    known = files.shared.get(id(compiled))
    if known is None:
        known = files.shared[id(compiled)] = _module_files(each, files, stem)
    code, assets = known
    return Module(
        target=lowered.target,
        abi_version=native_sources.module_abi_version(),
        file=code,
        constants=tuple(table.number(each.program, constant) for constant in lowered.constants),
        imports=compiled.imports,
        kernels=tuple(
            Kernel(call.name, operators)
            for call, operators in zip(
                lowered.kernels,
                source_operators(described.targets[lowered.target][each.stage], described.nodes, lowered),
                strict=True,
            )
        ),
        assets=assets,
        features=compiled.features,
    )


def _module_files(each: CompiledModule, files: _Files, stem: str) -> tuple[int, tuple[Asset, ...]]:
    """Adds the files of a module: the number of that of its code, and its assets."""
    target, compiled = each.lowered.target, each.compiled
    path = files.path(f"modules/{target}/{stem}", ".so")
    code = files.add(FileSource.from_bytes(path, compiled.code))
    files.modules[path] = each
    data = bytearray()
    places = []
    for asset in compiled.assets:
        data.extend(bytes(-len(data) % CONSTANT_ALIGNMENT))
        places.append((asset.name, len(data), len(asset.data)))
        data.extend(asset.data)
    if not places:
        return code, ()
    path = files.path(f"modules/{target}/{stem}", ".device")
    file = files.add(FileSource.from_bytes(path, bytes(data)))
    return code, tuple(Asset(name, file, offset, nbytes) for name, offset, nbytes in places)


def _stem(unit: Unit) -> str:
    return unit.name if unit.variant == DEFAULT else f"{unit.name}.{unit.variant}"


def _weights(replaceable: Replaceable, table: ConstantTable) -> Weights:
    tensors = tuple(
        WeightTensor(t.name, manifest_dtype(t.dtype), t.shape, None if t.holder is None else table.held(*t.holder))
        for t in replaceable.tensors
    )
    if replaceable.fold is None:
        return Weights(tensors, None)
    results = tuple(table.held(*result) for result in replaceable.results)
    return Weights(tensors, Fold(replaceable.fold.signature.name, results))


def _report(units: Sequence[CompiledUnit]) -> dict[str, object]:
    """What the passes did, for people; docs/format.md has the form."""
    entries: dict[str, dict[str, object]] = {}
    for compiled in units:
        unit = compiled.unit
        entries.setdefault(unit.name, {})[unit.variant] = [dataclasses.asdict(r) for r in pass_reports(compiled)]
    return {"entries": entries}


def pass_reports(compiled: CompiledUnit) -> tuple[PassReport, ...]:
    """What each pass did: those that are true on every device, then those of each backend, and host steps."""
    common = compiled.unit.program.reports
    found = list(common)
    for number, modules in enumerate(compiled.stages(), start=1):
        backends = {module.backend.name: module.program.reports[len(common) :] for module in modules}
        for report in chain.from_iterable(backends.values()):
            stage = "" if compiled.split is None else f"stage {number}: "
            found.append(dataclasses.replace(report, summary=stage + report.summary))
    steps = compiled.host_steps
    return (*found, *([report_of(steps)] if steps else []))


def _producer(units: Sequence[CompiledUnit], tools: Tools) -> dict[str, str]:
    modules = [module for unit in units for module in unit.modules]
    backends = {module.backend.name: module.backend for module in modules}
    told: dict[str, str] = {}
    for name, backend in backends.items():
        own = [module.lowered for module in modules if module.backend.name == name]
        told.update(backend.provenance(own, tools))
    return {
        "aotpack": __version__,
        "torch": str(torch.__version__),
        "compiler": tools.compiler.version,
        "source_sha256": _source_hash([module.lowered for module in modules]),
        **told,
    }


def _source_hash(lowered: Sequence[LoweredModule]) -> str:
    digest = hashlib.sha256()
    for module in lowered:
        for text in module.sources:
            digest.update(text.encode() + b"\0")
    return digest.hexdigest()
