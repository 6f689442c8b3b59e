"""What a build compiles: the programs of all entries and variants, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotpack.archive import Groups, Guard
from aotpack.errors import BuildError
from aotpack.export.ir.program import Program

DEFAULT = "default"


@dataclass(frozen=True)
class Unit:
    """One variant of one entry.

    Attributes:
        entry: the program that gives the entry its name and signature.
        variant: its name; "default" for the only one.
        guards: what its dims must be.
        program: what is compiled.
        same: groups of inputs that are one tensor.
    """

    entry: Program
    variant: str
    guards: tuple[Guard, ...]
    program: Program
    same: Groups = ()

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.entry.signature.name

    @property
    def label(self) -> str:
        """For people: `forward`, or `forward[batch=1]`."""
        return unit_label(self.name, self.variant)


def unit_label(entry: str, variant: str) -> str:
    """For people: `forward`, or `forward[batch=1]`."""
    return entry if variant == DEFAULT else f"{entry}[{variant}]"


def units_of(programs: Sequence[Program]) -> list[Unit]:
    """The units of an archive with these entries and their companions, in order.

    Raises:
        BuildError: there is no program, or two entries have one name.
    """
    if not programs:
        raise BuildError(
            "there is nothing to build", hint="pass a program, or a list of programs with different entry names"
        )
    units: list[Unit] = []
    names: set[str] = set()
    for program in (each for given in programs for each in (given, *given.companions)):
        name = program.signature.name
        if name in names:
            raise BuildError(
                f"two programs have the entry name {name!r}", hint="name each entry: aot_export(…, entry='prefill')"
            )
        names.add(name)
        if program.variants:
            units += [Unit(program, v.name, v.guards, v.program, v.same) for v in program.variants]
        else:
            units.append(Unit(program, DEFAULT, (), program))
    return units
