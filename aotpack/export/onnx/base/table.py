"""The table of operators: domain and name, and the opset from which a definition holds.

A definition is a function `(node, *inputs)`: inputs are tensors, None where a node omits one, and lists for sequences.
It returns a value, or a tuple of one per output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]
ALL = frozenset(range(64))


@dataclass(frozen=True)
class Operator:
    """A definition of an operator.

    Attributes:
        since: the opset from which it holds, to that of the next definition.
        function: `(node, *inputs)`.
        known: inputs, by position, that it takes as `Known` where their elements are known: sizes, axes, numbers.
    """

    since: int
    function: Function
    known: frozenset[int] = frozenset()


_OPERATORS: dict[tuple[str, str], list[Operator]] = {}
_ARITHMETIC: dict[tuple[str, str], Function] = {}

CONTRIB = "com.microsoft"
ML = "ai.onnx.ml"


def operator(
    *names: str, since: int = 1, domain: str = "", known: tuple[int, ...] | frozenset[int] = ()
) -> Callable[[Function], Function]:
    """Registers a definition of the operators `names` of `domain` from the opset `since` on."""

    def register(function: Function) -> Function:
        for name in names:
            entries = _OPERATORS.setdefault((domain, name), [])
            if any(entry.since == since for entry in entries):
                raise ValueError(f"{domain}.{name} is defined twice from opset {since} on")
            entries.append(Operator(since, function, frozenset(known)))
            entries.sort(key=lambda entry: entry.since)
        return function

    return register


def arithmetic(*names: str) -> Callable[[Function], Function]:
    """Registers what operators do with inputs that are all `Known`; `NotImplemented`: the general definition."""

    def register(function: Function) -> Function:
        for name in names:
            _ARITHMETIC["", name] = function
        return function

    return register


def find(domain: str, name: str, version: int) -> Operator | None:
    """The definition of an operator in an opset; None if there is none."""
    found = [entry for entry in _OPERATORS.get((domain, name), ()) if entry.since <= version]
    return found[-1] if found else None


def find_arithmetic(domain: str, name: str) -> Function | None:
    return _ARITHMETIC.get((domain, name))


def names() -> list[tuple[str, str, int]]:
    """Every definition: domain, name, first opset."""
    return sorted((*key, entry.since) for key, entries in _OPERATORS.items() for entry in entries)
