"""Packing of entries: the manifest's entries and modules, with the files that these consist of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotpack.archive import (
    Asset,
    Constant,
    Entry,
    FileSource,
    Implementation,
    Kernel,
    Module,
    Step,
    Variant,
)
from aotpack.archive.description import DescribedVariant
from aotpack.archive.layout import CONSTANT_ALIGNMENT
from aotpack.building import native_sources
from aotpack.errors import PartitionError
from aotpack.export.driver.archive_files import ArchiveFiles, stem_of
from aotpack.export.driver.compiled import CompiledModule, CompiledUnit
from aotpack.export.driver.describe import source_operators
from aotpack.export.weights.constant_table import ConstantTable
from aotpack.targets import BY_NAME


@dataclass(frozen=True)
class EntryPacker:
    """Adds entries to an archive.

    Attributes:
        table: the constants of all modules.
        files: those of the archive so far; modules are added.
        devices: the names of the archive's logical devices.
        described: the descriptions of units, by their labels.
    """

    table: ConstantTable
    files: ArchiveFiles
    devices: Sequence[str]
    described: Mapping[str, DescribedVariant]

    def entry(self, units: Sequence[CompiledUnit]) -> Entry:
        """The manifest's entry with these variants."""
        variants = []
        for compiled in units:
            unit = compiled.unit
            checks = tuple(
                dict.fromkeys(
                    check
                    for each in compiled.modules
                    for check in (*unit.program.checks, *each.program.checks, *each.lowered.checks)
                )
            )
            variants.append(Variant(unit.variant, unit.guards, self._implementations(compiled), checks, unit.same))
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

    def fold_entry(self, compiled: CompiledUnit, targets: Sequence[str]) -> Entry:
        """The entry that folds new weights for each target of the archive: on the host where these are not all CPUs."""
        entry = self.entry([compiled])
        if all(BY_NAME[target].companion is None for target in targets):
            return entry
        (variant,) = entry.variants
        steps = {
            implementation.target: tuple(dataclasses.replace(step, device=None) for step in implementation.steps)
            for implementation in variant.implementations
        }
        implementations = tuple(
            Implementation(target, steps[BY_NAME[target].companion or target]) for target in targets
        )
        return dataclasses.replace(
            entry,
            inputs=tuple(dataclasses.replace(value, device=None) for value in entry.inputs),
            outputs=tuple(dataclasses.replace(value, device=None) for value in entry.outputs),
            variants=(dataclasses.replace(variant, implementations=implementations),),
        )

    def _implementations(self, compiled: CompiledUnit) -> tuple[Implementation, ...]:
        """The implementation for each target."""
        stem, split, described = stem_of(compiled.unit), compiled.split, self.described[compiled.unit.label]
        if split is None:
            signature = compiled.unit.entry.signature
            sizes = len(signature.inputs), len(signature.outputs)
            return tuple(
                Implementation.of_module(self._module(each, stem, described), *sizes) for each in compiled.modules
            )
        numbers = [self.devices.index(name) for name in split.devices]
        values = tuple(
            value if value.device is None else dataclasses.replace(value, device=numbers[value.device])
            for value in split.values
        )
        steps: dict[str, list[Step]] = {}
        for number, (stage, modules) in enumerate(zip(split.stages, compiled.stages(), strict=True), start=1):
            for each in modules:
                module = self._module(each, f"{stem}.stage{number}", described)
                step = Step(module, stage.inputs, stage.outputs, self.devices.index(stage.device))
                steps.setdefault(each.lowered.target, []).append(step)
        return tuple(Implementation(target, tuple(found), values) for target, found in steps.items())

    def _module(self, each: CompiledModule, stem: str, described: DescribedVariant) -> Module:
        """The manifest's module. All assets of a module are in one file."""
        lowered, compiled = each.lowered, each.compiled
        # Blocks that are repeated are one module over different constants.
        known = self.files.shared.get(id(compiled))
        if known is None:
            known = self.files.shared[id(compiled)] = self._module_files(each, stem)
        code, assets = known
        return Module(
            target=lowered.target,
            abi_version=native_sources.module_abi_version(),
            file=code,
            constants=tuple(self.table.number(each.program, constant) for constant in lowered.constants),
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

    def _module_files(self, each: CompiledModule, stem: str) -> tuple[int, tuple[Asset, ...]]:
        """Adds the files of a module: the number of that of its code, and its assets."""
        target, compiled, files = each.lowered.target, each.compiled, self.files
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


def refuse_state_on_devices(constants: Sequence[Constant], entries: Sequence[Entry], devices: Sequence[str]) -> None:
    """Raises PartitionError where steps on several devices read state: it is one tensor in a context."""
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
