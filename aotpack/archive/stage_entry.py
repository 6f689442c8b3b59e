"""The entry of a stage that is an archive of its own: its signature is what the stage reads and makes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

from aotpack.archive.code import dims_of
from aotpack.archive.manifest import Entry, Reference, Source, Variant
from aotpack.errors import PartitionError
from aotpack.spec import CallSpec, Dim, DimRef, Expr, ShapeElement, TensorLeaf, TensorSpec, TupleSpec


@dataclass(frozen=True)
class StageEntry:
    """The entry, and its variant without implementations. `inputs_of_step`: by input of the step's module, the input of
    the entry.
    """

    entry: Entry
    variant: Variant
    inputs_of_step: tuple[int, ...]


def stage_entry(source: Entry, variant: Variant, index: int) -> StageEntry:
    """The entry of stage `index` of a variant.

    Raises:
        PartitionError: a dim that the stage needs is determined by none of its inputs.
    """
    implementation = variant.implementations[0]
    step = implementation.steps[index]
    lists = {Source.INPUT: source.inputs, Source.OUTPUT: source.outputs, Source.VALUE: implementation.values}

    def value(reference: Reference) -> TensorSpec:
        return lists[reference.source][reference.index]

    read = list(dict.fromkeys(step.inputs))
    free = _FreeSizes(dim.name for dim in source.dims)
    inputs = _named(
        [
            value(each) if each.source is Source.INPUT else free.bind(dataclasses.replace(value(each), dim=None))
            for each in read
        ]
    )
    outputs = _named([value(each) for each in step.outputs])
    dims = {dim.name: dim for dim in source.dims} | free.dims
    determined = {value.dim for value in inputs if value.dim is not None}
    determined |= {size.dim for value in inputs for size in value.shape if isinstance(size, DimRef)}
    used = _used_dims([*inputs, *outputs])
    for name in sorted(used - determined):
        raise PartitionError(f"stage {index} needs the dim {name!r}, which none of its inputs determines")
    checks = tuple(check for check in variant.checks if dims_of(check.code) <= determined)
    entry = Entry(
        name=source.name,
        dims=tuple(dims[name] for name in dims if name in determined | used),
        inputs=inputs,
        outputs=outputs,
        in_spec=CallSpec(tuple(map(TensorLeaf, range(len(inputs)))), tuple(value.name for value in inputs)),
        out_spec=TupleSpec(tuple(map(TensorLeaf, range(len(outputs))))),
        variants=(),
    )
    guards = tuple(guard for guard in variant.guards if guard.dim in determined)
    return StageEntry(entry, Variant(variant.name, guards, (), checks), tuple(read.index(each) for each in step.inputs))


class _FreeSizes:
    """Dims for sizes that came out of the data in an earlier stage: sizes of one text are one dim."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._names: dict[str, str] = {}
        self.dims: dict[str, Dim] = {}

    def bind(self, value: TensorSpec) -> TensorSpec:
        """The value with such dims."""
        return dataclasses.replace(value, shape=tuple(map(self._size, value.shape)), device=_device(value))

    def _size(self, size: ShapeElement) -> ShapeElement:
        if not isinstance(size, Expr) or size.code is not None:
            return size
        if size.text not in self._names:
            stem = re.sub(r"\W+", "_", size.text).strip("_") or "size"
            name = stem if stem.isidentifier() else f"size_{stem}"
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._names[size.text] = name
            self.dims[name] = Dim(name, 0)
        return DimRef(self._names[size.text])


def _device(value: TensorSpec) -> int | None:
    return None if value.number is not None else 0


def _named(values: list[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The values on the stage's device, with names of their own: a value and an output of an entry may share one."""
    taken: set[str] = set()
    named = []
    for value in values:
        name = value.name
        while name in taken:
            name += "_"
        taken.add(name)
        named.append(dataclasses.replace(value, name=name, device=_device(value)))
    return tuple(named)


def _used_dims(values: list[TensorSpec]) -> set[str]:
    used = set()
    for value in values:
        for size in (*value.shape, value.formula):
            if isinstance(size, DimRef):
                used.add(size.dim)
            elif isinstance(size, Expr) and size.code is not None:
                used |= dims_of(size.code)
    return used
