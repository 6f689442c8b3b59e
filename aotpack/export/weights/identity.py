"""The shared constants of the programs of one archive: those that are one tensor, and state that one of them writes.

Entries and variants are captured one by one, from the same model. A constant of the model is the same memory in all of
them; one that passes derived is the same when it is computed in the same way from the same constants.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from aotpack.export.ir.program import Program, identity
from aotpack.export.weights.rebase import over_one_base


class Identities:
    """Numbers for the constants of programs: equal where, whatever the weights, the values are equal.

    That two constants differ is not certain when their numbers do. The programs must outlive this object.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[tuple[int, str], int] = {}

    def number(self, program: Program, attribute: str) -> int:
        """The number of a constant of a program."""
        known = self._known.get((id(program), attribute))
        if known is None:
            known = self._known[id(program), attribute] = self._intern(self._key(program, attribute))
        return known

    def of(self, value: object) -> int:
        """A number for a value that is not a constant of a program; equal for the same object alone."""
        return self._intern(("object", id(value)))

    def _intern(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _key(self, program: Program, attribute: str) -> Hashable:
        recipe = program.constant_info(attribute).recipe
        if recipe is None:
            return ("tensor", *identity(program.original(attribute)))
        inputs = tuple(self.number(program, name) for name in recipe.inputs)
        return ("recipe", frozen(recipe.function), inputs)


def frozen(value: Any) -> Hashable:
    """A key that is equal for functions and arguments that compute the same; at worst, for the same object alone."""
    if isinstance(value, partial):
        return ("partial", frozen(value.func), frozen(value.args), frozen(value.keywords))
    if isinstance(value, types.FunctionType):
        cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
        given = (value.__defaults__, value.__kwdefaults__, cells)
        return ("function", value.__module__, value.__code__, frozen(given))
    if isinstance(value, types.MethodType):
        return ("method", frozen(value.__func__), frozen(value.__self__))
    if isinstance(value, (tuple, list)):
        return (type(value), tuple(frozen(item) for item in value))
    if isinstance(value, dict):
        return ("dict", tuple((frozen(key), frozen(item)) for key, item in value.items()))
    if isinstance(value, float):
        return (float, value.hex())  # tells 0.0 from -0.0, and nan is nan
    plain = (bool, int, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)
    if value is None or isinstance(value, plain):
        return (type(value), value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple(getattr(value, item.name) for item in dataclasses.fields(value))
        return (type(value), frozen(fields))
    return ("object", id(value))


def share_state(programs: Sequence[Program]) -> list[Program]:
    """The programs, in each of which what any of them writes to is state: never folded, packed or compiled in. What
    shares memory with state is a view of it.

    Raises:
        BuildError: tensors of different dtypes share memory with state.
    """
    programs = over_one_base(programs)
    written = {
        identity(program.original(attribute))
        for program in programs
        for attribute in program.constant_names()
        if program.constant_info(attribute).mutated
    }
    result = []
    for program in programs:
        marked = {
            attribute: replace(program.constant_info(attribute), mutated=True)
            for attribute in program.constant_names()
            if identity(program.original(attribute)) in written
        }
        result.append(replace(program, constants={**program.constants, **marked}) if marked else program)
    return result
