"""Operators without a kernel: found before anything is compiled, and reported in one error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from aotpack.errors import UnsupportedOperatorError
from aotpack.export.torch_compat.inductor.fallbacks import Fallback, key

_SHOWN_PLACES = 3
_HINT = (
    "register a kernel for the operator (docs/custom_ops.md), write the model with operators that have one "
    "(docs/operators.md), or leave that part outside the archive"
)


class OperatorUse(NamedTuple):
    """A place in the model that needs an operator: see `UnsupportedOperatorError.uses`."""

    operator: str
    module: str
    line: str


def uses_of(calls: Sequence[Fallback], missing: Iterable[str], dispatched: Collection[str]) -> tuple[OperatorUse, ...]:
    """Every place that needs an operator which the module cannot call.

    Args:
        calls: the operators that generated code calls.
        missing: names of C functions that no group implements.
        dispatched: operators that Inductor has no C function for.
    """
    # The name of an operator's C function may differ from the operator's; a use that is not found by it has no place.
    wanted = {key(shim): f"aten.{key(shim)}" for shim in missing} | {key(name): name for name in dispatched}
    uses: list[OperatorUse] = []
    found: set[str] = set()
    for call in calls:
        keys = call.keys & wanted.keys()
        if keys:
            found |= keys
            uses.append(OperatorUse(call.operator, call.module, call.line.full if call.line else ""))
    uses += [OperatorUse(name, "", "") for known, name in sorted(wanted.items()) if known not in found]
    return tuple(uses)


def refuse(uses: Sequence[OperatorUse], *, verdict: str = "supported", hint: str = _HINT) -> None:
    """Raises UnsupportedOperatorError for `uses`, if there are any: each operator with its places in the model.

    Args:
        uses: what is refused.
        verdict: what the operators are not.
        hint: what the user can do.
    """
    if not uses:
        return
    places: dict[str, Counter[tuple[str, str]]] = {}
    for use in uses:
        places.setdefault(use.operator, Counter())[use.module, use.line] += 1
    operators = tuple(sorted(places))
    lines = []
    for operator in operators:
        lines.append(f"  - {operator}")
        known = [(module, line) for module, line in places[operator] if module or line]
        lines += [f"      {_place(module, line)}" for module, line in known[:_SHOWN_PLACES]]
        if len(known) > _SHOWN_PLACES:
            lines.append(f"      and {len(known) - _SHOWN_PLACES} more places")
    count = "1 operator is" if len(operators) == 1 else f"{len(operators)} operators are"
    raise UnsupportedOperatorError(
        f"{count} not {verdict}:\n" + "\n".join(lines),
        operators=operators,
        uses=tuple(dict.fromkeys(uses)),
        hint=hint,
    )


def _place(module: str, line: str) -> str:
    return " at ".join(part for part in (f"in {module}" if module else "", line) if part)
