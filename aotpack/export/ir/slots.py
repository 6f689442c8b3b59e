"""Arguments of calls that a recipe makes later: in place of values, which these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Slot:
    """A value of a recipe by its number: the arguments first, then the results of the calls."""

    number: int


def filled(value: Any, values: Sequence[Any]) -> Any:
    """An argument with the values for the slots in it."""
    if isinstance(value, Slot):
        return values[value.number]
    if isinstance(value, (list, tuple)):
        return type(value)(filled(item, values) for item in value)
    if isinstance(value, dict):
        return {key: filled(item, values) for key, item in value.items()}
    return value
