"""The constants of an archive: each once per layout, whichever of its entries, variants and targets read it.

A constant is identified by what it is (see `Identities`) and the layout in which modules read it. Targets that agree on
a layout share it; otherwise it is stored once for each layout. State is one tensor in a context, so all modules must
read it in one layout. The same holds for an original weight that is replaceable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from aotpack.archive import Placement
from aotpack.errors import BuildError
from aotpack.export.backends.backend import LoweredConstant
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.ir.units import Unit
from aotpack.export.weights.identity import Identities
from aotpack.export.weights.updatable import FOLD, Replaceable


@dataclass(frozen=True)
class Row:
    """A constant, the first program that reads it, and what people call that."""

    constant: LoweredConstant
    of: Program
    label: str

    @property
    def is_exact(self) -> bool:
        """Whether the value is the same wherever it is computed."""
        return self.constant.literal is None and self.of.is_exact(self.constant.name)

    def value(self) -> torch.Tensor:
        """Computed anew, in the layout that modules read."""
        constant = self.constant
        value = self.of.value(constant.name) if constant.literal is None else constant.literal
        if value.stride() == constant.stride and is_dense(value):
            return value
        return torch.empty_strided(constant.shape, constant.stride, dtype=constant.dtype).copy_(value)


class Reads(Protocol):
    """A module, as far as it reads constants."""

    @property
    def constants(self) -> Sequence[LoweredConstant]:
        """Each once."""


class ConstantTable:
    """The constants that units read, in the order in which they are packed: that of the graphs, but those whose value
    is not exact come last. So all that can be computed while code is generated, see `EarlyConstants`, comes first.

    They get names, and numbers in the manifest, once they are placed.

    Raises:
        BuildError: two modules read state, or an original weight that is replaceable, in different layouts.
    """

    def __init__(
        self,
        modules: Sequence[tuple[Unit, Program, Reads]],
        identities: Identities,
        replaceable: Replaceable | None,
    ) -> None:
        self.rows: list[Row] = []
        self._identities = identities
        self._by_key: dict[tuple[object, ...], int] = {}
        self._by_identity: dict[int, list[int]] = {}
        self._numbers: list[int] = []
        self._named: list[tuple[str, int]] = []
        read = [Row(each, of, unit.label) for unit, of, module in modules for each in _ordered(of, module)]
        for row in sorted(read, key=lambda row: not row.is_exact):
            self._add(row)
        held = [t.holder for t in replaceable.tensors if t.holder is not None] if replaceable is not None else []
        for holder in held:
            if identities.number(*holder) not in self._by_identity:
                self._add(Row(_kept(*holder), holder[0], holder[0].signature.name))
        replaced = [*held, *(replaceable.results if replaceable is not None else ())]
        self._replaced = {key for holder in replaced for key in self._by_identity[identities.number(*holder)]}
        for holder in replaced:
            self._refuse_layouts(self._by_identity[identities.number(*holder)], "replaceable")
        for keys in self._by_identity.values():
            if any(self.rows[key].constant.info.mutated for key in keys):
                self._refuse_layouts(keys, "state")

    def is_replaced(self, key: int) -> bool:
        """Whether an update of the weights replaces the row of this index."""
        return key in self._replaced

    def place(self, placements: Mapping[int, Placement]) -> None:
        """Names the constants, now that it is known which hold the same bytes. Rows that an update replaces need no
        placement.

        Constants of one name, origin and value in several units, which capture may have made anew for each, become one
        where that can be told from outside by nothing: no call writes to them, and no update.
        """
        equal: dict[object, int] = {}
        taken: set[str] = set()
        for key, row in enumerate(self.rows):
            info = row.constant.info
            if not (info.mutated or key in self._replaced):
                looks = (row.constant.name, info.role, info.sources, *row.constant.layout, row.label == FOLD)
                number = equal.setdefault((looks, placements[key].sha256), len(self._named))
                if number != len(self._named):
                    self._numbers.append(number)
                    continue
            self._numbers.append(len(self._named))
            self._named.append((_free_name(row, taken), key))

    def named(self) -> Iterator[tuple[str, int, Row]]:
        """(name, index of the row, row) of each constant of the manifest."""
        for name, key in self._named:
            yield name, key, self.rows[key]

    def number(self, program: Program, constant: LoweredConstant) -> int:
        """The index in the manifest of what a module of `program` reads."""
        return self._numbers[self._by_key[self._identity(program, constant), *constant.layout]]

    def held(self, program: Program, attribute: str) -> int:
        """The index in the manifest of a constant of `program`."""
        return self._numbers[self._by_identity[self._identities.number(program, attribute)][0]]

    def _add(self, row: Row) -> None:
        number = self._identity(row.of, row.constant)
        key = self._by_key.setdefault((number, *row.constant.layout), len(self.rows))
        if key == len(self.rows):
            self.rows.append(row)
            self._by_identity.setdefault(number, []).append(key)

    def _refuse_layouts(self, keys: Sequence[int], what: str) -> None:
        """Raises BuildError where a constant that must be one tensor is read in several layouts."""
        first, *others = (self.rows[key] for key in keys)
        for other in others:
            raise BuildError(
                f"{other.constant.name!r} is {what}, so all modules must read it in one layout: it has the strides "
                f"{other.constant.stride} in {other.label}, but {first.constant.stride} in {first.label}"
            )

    def _identity(self, program: Program, constant: LoweredConstant) -> int:
        if constant.literal is not None:
            return self._identities.of(constant.literal)
        return self._identities.number(program, constant.name)


def _ordered(program: Program, module: Reads) -> list[LoweredConstant]:
    """The constants of a module in the order in which the graph reads them; then those that it does not name."""
    places = {name: place for place, name in enumerate(program.constant_names())}
    return sorted(module.constants, key=lambda each: places.get(each.name, len(places)))


def _free_name(row: Row, taken: set[str]) -> str:
    """A name that no other constant has: with the unit before it where that is needed."""
    plain = row.constant.name
    name = f"{FOLD}.{plain}" if row.label == FOLD else plain
    number = 1
    while name in taken:
        name = f"{row.label}.{plain}" if number == 1 else f"{row.label}.{plain}_{number}"
        number += 1
    taken.add(name)
    return name


def _kept(program: Program, attribute: str) -> LoweredConstant:
    """A tensor of the source model that no module reads, kept as it was."""
    value = program.original(attribute)
    stride = value.stride() if is_dense(value) else torch.empty(value.shape, device="meta").stride()
    return LoweredConstant(attribute, program.constant_info(attribute), value.dtype, tuple(value.shape), stride)
