"""Packing: compiled entries and the constants that they read become an archive."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby
from pathlib import Path

import torch

from aotpack import __version__
from aotpack.archive import (
    Constant,
    Entry,
    FileSource,
    Fold,
    Kernel,
    Manifest,
    Module,
    Variant,
    Weights,
    WeightTensor,
    layout_constants,
    write_archive,
)
from aotpack.export import toolchain
from aotpack.export.capture.interface import manifest_dtype
from aotpack.export.constant_table import ConstantTable
from aotpack.export.custom import units as custom_units
from aotpack.export.goldens import golden_file, tensor_bytes
from aotpack.export.lower import Lowered
from aotpack.export.shared import Identities
from aotpack.export.source_module import SourceTensors
from aotpack.export.units import DEFAULT, Unit
from aotpack.export.updatable import Replaceable

# Memory goes back to the system after so many bytes of constants.
_TRIM_BYTES = 32 << 20
_ABI_VERSION = 1
_IMPORTS = ("alloc", "free", "fail", "seed")


@dataclass(frozen=True)
class CompiledUnit:
    """A program with what it was lowered to and compiled to, per target."""

    unit: Unit
    lowered: tuple[Lowered, ...]
    objects: tuple[bytes, ...]


def pack(
    units: Sequence[CompiledUnit],
    name: str,
    output: Path,
    *,
    identities: Identities,
    replaceable: Replaceable | None = None,
    goldens: bool = True,
    free_source: bool = False,
    compiler_version: str,
) -> int:
    """Writes the archive and returns its size in bytes.

    Constants are computed one at a time, each once, in the order in which the units read them.

    Raises:
        BuildError: two units see one constant in different layouts.
        OSError: the file, or the temporary one beside it, cannot be written.
    """
    table = ConstantTable([(unit.unit, unit.lowered) for unit in units], identities, replaceable)
    freed = None
    if free_source:
        freed = SourceTensors(
            [unit.unit.program for unit in units],
            [(row.of, row.constant.name) for row in table.rows if row.constant.literal is None],
        )
    layout = layout_constants(_values(table, freed), folder=output.parent)
    table.place(layout.placements)
    constants = tuple(
        Constant(
            name=constant,
            role=row.constant.info.role,
            sources=row.constant.info.sources,
            dtype=manifest_dtype(row.constant.dtype),
            shape=row.constant.shape,
            stride=row.constant.stride,
            file=layout.placements[key].segment,
            offset=layout.placements[key].offset,
            nbytes=layout.placements[key].nbytes,
            sha256=layout.placements[key].sha256,
            mutated=row.constant.info.mutated,
        )
        for constant, key, row in table.named()
    )
    files = _Files(list(layout.segments))
    entries = [_entry(list(group), table, files, goldens=goldens) for _, group in groupby(units, lambda u: u.unit.name)]
    report = json.dumps(_report(units), indent=1, sort_keys=True).encode() + b"\n"
    files.add(FileSource.from_bytes("reports/passes.json", report))
    manifest = Manifest(
        name,
        _producer(units, compiler_version),
        constants,
        tuple(entries),
        report=len(files.sources) - 1,
        weights=None if replaceable is None else _weights(replaceable, table),
    )
    return write_archive(output, manifest, files.sources)


@dataclass
class _Files:
    """The files of an archive so far."""

    sources: list[FileSource]

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


def _values(table: ConstantTable, freed: SourceTensors | None) -> Iterator[tuple[int, memoryview]]:
    packed = 0
    for key, row in enumerate(table.rows):
        value = row.value()
        packed += value.nbytes
        yield key, tensor_bytes(value)
        del value
        if freed is not None and row.constant.literal is None:
            freed.packed(row.of, row.constant.name)
        if packed >= _TRIM_BYTES:
            packed = 0
            _return_memory()


def _return_memory() -> None:
    """Has glibc give freed memory back to the system, of which it keeps blocks below 32 MB."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _entry(units: Sequence[CompiledUnit], table: ConstantTable, files: _Files, *, goldens: bool) -> Entry:
    """The manifest's entry with these variants; adds its files."""
    variants, examples = [], []
    for compiled in units:
        unit = compiled.unit
        stem = unit.name if unit.variant == DEFAULT else f"{unit.name}.{unit.variant}"
        modules = []
        for module, code in zip(compiled.lowered, compiled.objects, strict=True):
            path = files.path(f"modules/{module.target}/{stem}", ".so")
            modules.append(
                Module(
                    target=module.target,
                    abi_version=_ABI_VERSION,
                    file=files.add(FileSource.from_bytes(path, code)),
                    constants=tuple(table.number(unit.program, constant) for constant in module.constants),
                    imports=_IMPORTS,
                    kernels=tuple(Kernel(kernel, ops) for kernel, ops in module.kernels),
                )
            )
        later = [check for module in compiled.lowered for check in module.checks]
        checks = tuple(dict.fromkeys([*unit.program.checks, *later]))
        variants.append(Variant(unit.variant, unit.guards, tuple(modules), checks))
        example = golden_file(unit.program, files.path(f"goldens/{stem}", ".bin"), len(files.sources))
        if goldens and example is not None:
            examples.append(example[0])
            files.add(example[1])
    signature = units[0].unit.entry.signature
    return Entry(
        name=signature.name,
        dims=signature.dims,
        inputs=signature.inputs,
        outputs=signature.outputs,
        in_spec=signature.in_spec,
        out_spec=signature.out_spec,
        variants=tuple(variants),
        goldens=tuple(examples),
    )


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
        entries.setdefault(unit.name, {})[unit.variant] = [dataclasses.asdict(r) for r in unit.program.reports]
    return {"entries": entries}


def _producer(units: Sequence[CompiledUnit], compiler_version: str) -> dict[str, str]:
    lowered = [module for unit in units for module in unit.lowered]
    flags = toolchain.library_flags(lowered[0].target, halves=lowered[0].halves)
    return {
        "aotpack": __version__,
        "torch": str(torch.__version__),
        "compiler": compiler_version,
        "flags": " ".join(flag for flag in flags if flag.startswith("-O")),
        "source_sha256": _source_hash(lowered),
        **{
            f"kernel {operator}": files
            for module in lowered
            for operator, files in custom_units.described(module.custom)
        },
    }


def _source_hash(lowered: Sequence[Lowered]) -> str:
    digest = hashlib.sha256()
    for module in lowered:
        for text in (module.wrapper, *module.units):
            digest.update(text.encode() + b"\0")
    return digest.hexdigest()
