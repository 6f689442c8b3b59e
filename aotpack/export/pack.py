"""Packing: compiled entries and the constants that they read become an archive."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from aotpack.export.editing import is_dense
from aotpack.export.goldens import golden_files, tensor_bytes
from aotpack.export.interface import manifest_dtype
from aotpack.export.lower import Lowered, LoweredConstant
from aotpack.export.program import ConstantInfo, Program
from aotpack.export.source_module import SourceTensors
from aotpack.export.updatable import Replaceable

# Memory goes back to the system after so many bytes of constants.
_TRIM_BYTES = 32 << 20
_ABI_VERSION = 1
_IMPORTS = ("alloc", "free", "fail", "seed")


@dataclass(frozen=True)
class CompiledEntry:
    """A program with what it was lowered to and compiled to, per target."""

    program: Program
    lowered: tuple[Lowered, ...]
    objects: tuple[bytes, ...]


def pack(
    entries: Sequence[CompiledEntry],
    name: str,
    output: Path,
    *,
    replaceable: Replaceable | None = None,
    goldens: bool = True,
    free_source: bool = False,
    compiler_version: str,
) -> int:
    """Writes the archive and returns its size in bytes.

    Constants are computed one at a time, in the order in which the first entry reads them.

    Raises:
        OSError: the file, or the temporary one beside it, cannot be written.
    """
    table = _table(entries, replaceable)
    freed = None
    if free_source:
        main = entries[0].program
        rows = [key for key, row in table.items() if row.of is main and row.constant.literal is None]
        freed = SourceTensors(main, rows)
    layout = layout_constants(_values(table, freed), folder=output.parent)
    numbers = {key: index for index, key in enumerate(table)}
    constants = tuple(
        Constant(
            name=key,
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
        for key, row in table.items()
    )
    sources = list(layout.segments)
    packed = [_entry(entry, numbers, sources, goldens=goldens) for entry in entries]
    report = json.dumps(_report(entries), indent=1, sort_keys=True).encode() + b"\n"
    sources.append(FileSource.from_bytes("reports/passes.json", report))
    manifest = Manifest(
        name,
        _producer(entries, compiler_version),
        constants,
        tuple(packed),
        report=len(sources) - 1,
        weights=None if replaceable is None else _weights(replaceable, numbers),
    )
    return write_archive(output, manifest, sources)


@dataclass(frozen=True)
class _Row:
    """A constant of the archive and the program that it belongs to."""

    constant: LoweredConstant
    of: Program

    def value(self) -> torch.Tensor:
        constant = self.constant
        value = self.of.value(constant.name) if constant.literal is None else constant.literal
        if value.stride() == constant.stride and is_dense(value):
            return value
        return torch.empty_strided(constant.shape, constant.stride, dtype=constant.dtype).copy_(value)


def _table(entries: Sequence[CompiledEntry], replaceable: Replaceable | None) -> dict[str, _Row]:
    """The archive's constants by name. Entries share those of their main program; a literal is its entry's own."""
    main = entries[0].program
    table: dict[str, _Row] = {}
    for entry in entries:
        for module in entry.lowered:
            for constant in module.constants:
                name = constant.name if entry.program is main else f"{entry.program.signature.name}.{constant.name}"
                table.setdefault(name, _Row(constant, entry.program))
    for tensor in replaceable.tensors if replaceable is not None else ():
        if tensor.attribute is not None and tensor.attribute not in table:
            table[tensor.attribute] = _Row(_kept(main, tensor.attribute), main)
    return table


def _kept(program: Program, attribute: str) -> LoweredConstant:
    """A tensor of the source model that no module reads, kept as it was."""
    value = program.original(attribute)
    stride = value.stride() if is_dense(value) else torch.empty(value.shape, device="meta").stride()
    info: ConstantInfo = program.constant_info(attribute)
    return LoweredConstant(attribute, info, value.dtype, tuple(value.shape), stride)


def _values(table: dict[str, _Row], freed: SourceTensors | None) -> Iterator[tuple[str, memoryview]]:
    packed = 0
    for key, row in table.items():
        value = row.value()
        packed += value.nbytes
        yield key, tensor_bytes(value)
        del value
        if freed is not None and row.constant.literal is None:
            freed.packed(key)
        if packed >= _TRIM_BYTES:
            packed = 0
            _return_memory()


def _return_memory() -> None:
    """Has glibc give freed memory back to the system, of which it keeps blocks below 32 MB."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _entry(entry: CompiledEntry, numbers: dict[str, int], sources: list[FileSource], *, goldens: bool) -> Entry:
    """The manifest's entry; appends its files to `sources`."""
    program, signature = entry.program, entry.program.signature
    modules = []
    for module, code in zip(entry.lowered, entry.objects, strict=True):
        names = [c.name if c.name in numbers else f"{signature.name}.{c.name}" for c in module.constants]
        modules.append(
            Module(
                target=module.target,
                abi_version=_ABI_VERSION,
                file=len(sources),
                constants=tuple(numbers[name] for name in names),
                imports=_IMPORTS,
                kernels=tuple(Kernel(kernel, ops) for kernel, ops in module.kernels),
            )
        )
        sources.append(FileSource.from_bytes(f"modules/{module.target}/{signature.name}.so", code))
    examples, files = golden_files(program, len(sources)) if goldens else ((), [])
    sources += files
    return Entry(
        name=signature.name,
        dims=signature.dims,
        inputs=signature.inputs,
        outputs=signature.outputs,
        in_spec=signature.in_spec,
        out_spec=signature.out_spec,
        variants=(Variant("default", (), tuple(modules)),),
        goldens=examples,
    )


def _weights(replaceable: Replaceable, numbers: dict[str, int]) -> Weights:
    tensors = tuple(
        WeightTensor(t.name, manifest_dtype(t.dtype), t.shape, None if t.attribute is None else numbers[t.attribute])
        for t in replaceable.tensors
    )
    if replaceable.fold is None:
        return Weights(tensors, None)
    results = tuple(numbers[result] for result in replaceable.results)
    return Weights(tensors, Fold(replaceable.fold.signature.name, results))


def _report(entries: Sequence[CompiledEntry]) -> dict[str, object]:
    """What the passes did, for people; docs/format.md has the form."""
    return {
        "entries": {
            entry.program.signature.name: [
                {
                    "name": report.name,
                    "summary": report.summary,
                    "changes": [{"layer": change.layer, "note": change.note} for change in report.changes],
                }
                for report in entry.program.reports
            ]
            for entry in entries
        }
    }


def _producer(entries: Sequence[CompiledEntry], compiler_version: str) -> dict[str, str]:
    lowered = [module for entry in entries for module in entry.lowered]
    flags = toolchain.library_flags(lowered[0].target, halves=lowered[0].halves)
    return {
        "aotpack": __version__,
        "torch": str(torch.__version__),
        "compiler": compiler_version,
        "flags": " ".join(flag for flag in flags if flag.startswith("-O")),
        "source_sha256": _source_hash(lowered),
    }


def _source_hash(lowered: Sequence[Lowered]) -> str:
    digest = hashlib.sha256()
    for module in lowered:
        for text in (module.wrapper, *module.units):
            digest.update(text.encode() + b"\0")
    return digest.hexdigest()
