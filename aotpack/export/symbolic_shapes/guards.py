"""The requirements of a captured program on its dims: ranges, multiples, and conditions beyond these.

Conditions are sympy expressions over one symbol per dim, `dim_symbol(name)`. They are simplified with what is known of
the dims: what follows from ranges and multiples goes, what is a range or a multiple becomes one. Tests prove with z3
that what is left is equivalent to what torch found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import sympy

from aotpack.archive.code import UndefinedError, evaluate
from aotpack.errors import CaptureError
from aotpack.export.symbolic_shapes.canonical import (
    canonical,
    conjuncts,
    divisor,
    interval,
    outcome,
    positive_factors,
    solved,
    spellings,
    without_special_cases,
)
from aotpack.export.symbolic_shapes.declared import Note, Question
from aotpack.export.symbolic_shapes.expressions import write
from aotpack.export.symbolic_shapes.shape_env import Assumption, Origin, value_range
from aotpack.spec import Check, Dim

# A condition on one dim of at most so many sizes is looked at size by size.
_FEW = 512


def dim_symbol(name: str) -> sympy.Symbol:
    """The symbol that stands for a dim in conditions."""
    return sympy.Symbol(name, integer=True)


def check_of(condition: sympy.Basic) -> Check:
    """The check of a condition that can be coded."""
    written = write(condition)
    if written.code is None:
        raise ValueError(f"{written.text} cannot be computed in a call")
    return Check(written.text, written.code)


@dataclass(frozen=True)
class Demands:
    """What calls must satisfy, and how it came about."""

    dims: tuple[Dim, ...]
    checks: tuple[Check, ...]
    notes: tuple[Note, ...]
    questions: tuple[Question, ...] = ()


def demands(
    dims: Iterable[Dim],
    assumptions: Iterable[Assumption],
    *,
    explicit_min: frozenset[str] = frozenset(),
    explicit_max: bool = True,
    bounded: frozenset[str] = frozenset(),
    settle: bool = True,
) -> Demands:
    """The dims with what the assumptions say of them, and the checks that are left.

    Args:
        dims: as the user declared them.
        assumptions: over `dim_symbol`s of their names alone. What operators want to know of sizes 0 and 1 alone is
            left out: whether these work is to be tried out (see `probe`).
        explicit_min: names of dims whose least size the user gave.
        explicit_max: whether greatest sizes are the user's.
        bounded: names of dims with a bound of the user's, which must work for all of their sizes.
        settle: whether to take for granted what operators ask; otherwise it is left as questions, to be tried out.

    Raises:
        CaptureError: an assumption cannot be checked in a call, no size satisfies them, or they take sizes from a dim
            that the user asked for by an explicit bound.
    """
    solver = _Solver(dims, explicit_min, explicit_max=explicit_max, bounded=bounded)
    inside = []
    for assumption in assumptions:
        for part in map(solver.reduced, conjuncts(assumption.expr)):
            if assumption.origin.inside or (not settle and solver.skips_nothing(part)):
                inside.append(replace(assumption, expr=part))
            else:
                solver.add(replace(assumption, expr=part))
    if settle:
        solver.add_doubtful(inside)
        return solver.result()
    result = solver.result()
    return replace(result, questions=(*result.questions, *solver.doubts(inside)))


def implied(condition: sympy.Basic, dims: Iterable[Dim], checks: Iterable[Check] = ()) -> bool:
    """Whether a condition follows from the ranges and multiples of the dims, or is one of the checks."""
    solver = _Solver(dims, frozenset())
    known = {check.text for check in checks}
    parts = [part for whole in conjuncts(condition) for part in conjuncts(solver.reduced(whole))]
    return all(part == sympy.true or write(part).text in known for part in parts)


class _Solver:
    def __init__(
        self,
        dims: Iterable[Dim],
        explicit_min: frozenset[str],
        *,
        explicit_max: bool = True,
        bounded: frozenset[str] = frozenset(),
    ) -> None:
        self._bounded = bounded
        self.dims = {dim.name: dim for dim in dims}
        self._declared = dict(self.dims)
        self._explicit_min = explicit_min
        self._explicit_max = explicit_max
        self._pending: dict[sympy.Basic, Origin] = {}
        self._notes: dict[tuple[str, str], Note] = {}

    def add(self, assumption: Assumption) -> None:
        """Takes what it says into the dims, and keeps the rest."""
        for condition in conjuncts(assumption.expr):
            for part in conjuncts(self.reduced(condition)):
                if part != sympy.true and not self._taken(part, assumption.origin):
                    self._pending.setdefault(part, assumption.origin)

    def add_doubtful(self, assumptions: Iterable[Assumption]) -> None:
        """The same, without what is true of all sizes from 2 on."""
        parts = [Assumption(part, a.origin) for a in assumptions for part in conjuncts(a.expr)]
        # What is surely needed comes first, for others may follow from it.
        for sure in (True, False):
            rest = []
            for part in parts:
                if self._of_small_sizes(part.expr):
                    continue
                if sure and not isinstance(part.expr, (sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)):
                    rest.append(part)
                else:
                    self.add(part)
            parts = rest

    def doubts(self, assumptions: Iterable[Assumption]) -> list[Question]:
        """The same as questions, after everything that is sure."""
        found: dict[sympy.Basic, Question] = {}
        for assumption in assumptions:
            for condition in conjuncts(assumption.expr):
                for part in conjuncts(self.reduced(condition)):
                    if part != sympy.true and part not in self._pending and not self._of_small_sizes(part):
                        found.setdefault(part, Question(part, str(assumption.origin), doubtful=True))
        return list(found.values())

    def skips_nothing(self, condition: sympy.Basic) -> bool:
        """Whether it is `p > 0` of a computed size that may be 0: `if padding > 0:` most often skips what would do
        nothing, and the trace has the way that is right for all sizes.
        """
        if not isinstance(condition, (sympy.Ge, sympy.Gt, sympy.Ne)):
            return False
        # Gt: sympy does not know as an integer what is computed from a quotient of floats (`math.ceil(n / 2)`).
        if condition.rhs != int(isinstance(condition, sympy.Ge)):
            return False
        value = condition.lhs
        low, _ = value_range(value, self._ranges())
        return not isinstance(value, sympy.Symbol) and low is not None and bool(low >= 0)

    def _of_small_sizes(self, condition: sympy.Basic) -> bool:
        dims = [self.dims[symbol.name] for symbol in condition.free_symbols]
        if any(dim.min < 0 for dim in dims):
            return False
        larger = [replace(dim, min=max(dim.min, 2 if dim.max is None else min(2, dim.max))) for dim in dims]
        return implied(condition, larger)

    def result(self) -> Demands:
        before: Any = None
        while before != (self.dims, set(self._pending)):
            before = (dict(self.dims), set(self._pending))
            pending, self._pending = self._pending, {}
            for condition, origin in pending.items():
                self.add(Assumption(condition, origin))
        checks = tuple(self._check(condition, origin) for condition, origin in self._pending.items())
        unique = {check.text: check for check in checks}
        questions = tuple(Question(condition, str(origin)) for condition, origin in self._pending.items())
        return Demands(tuple(self.dims.values()), tuple(unique.values()), tuple(self._notes.values()), questions)

    def _check(self, condition: sympy.Basic, origin: Origin) -> Check:
        if condition == sympy.false:
            raise CaptureError(
                f"no sizes satisfy all conditions of the capture{origin}",
                hint="check branches on sizes in the model and the ranges of the dims",
            )
        written = write(condition)
        if written.code is None:
            raise CaptureError(
                f"the capture relies on {written.text}, which cannot be checked in a call{origin}",
                hint="make the dims in it static in dynamic_shapes, or write the model without that condition",
            )
        names = sorted(symbol.name for symbol in condition.free_symbols)
        if len(names) == 1 and names[0] in self._bounded:
            _refuse(self._declared[names[0]], f"must satisfy {written.text}", origin)
        self._note(", ".join(names), f"must satisfy {written.text}", origin)
        return Check(written.text, written.code)

    # ---- what follows from the dims ----

    def _ranges(self) -> dict[sympy.Symbol, tuple[int | None, int | None]]:
        ranges: dict[sympy.Symbol, tuple[int | None, int | None]] = {}
        for name, dim in self.dims.items():
            step = dim.multiple_of
            high = None if dim.max is None else dim.max // step * step
            ranges[dim_symbol(name)] = (-(-dim.min // step) * step, high)
        return ranges

    def reduced(self, condition: sympy.Basic) -> sympy.Basic:
        """An equivalent condition, given the dims; `true` where it follows from them."""
        if isinstance(condition, sympy.Not):
            inner = self.reduced(condition.args[0])
            return sympy.Not(inner)
        if isinstance(condition, (sympy.And, sympy.Or)):
            parts = [self.reduced(part) for part in condition.args]
            if isinstance(condition, sympy.Or):
                parts = without_special_cases(parts)
            return type(condition)(*parts)
        if not isinstance(condition, sympy.Rel) or not condition.free_symbols:
            return condition
        condition = self._without_extremes(condition)
        condition = self._decided(condition) if isinstance(condition, sympy.Rel) else condition
        if not isinstance(condition, sympy.Rel) or not condition.free_symbols:
            return condition
        condition = canonical(condition, self._multiples())
        if not isinstance(condition, sympy.Rel):
            return self.reduced(condition)
        return self._decided(condition)

    def _without_extremes(self, condition: sympy.Rel) -> sympy.Basic:
        """Without the arguments of `max` and `min` that another one always beats."""
        for extreme in sympy.preorder_traversal(condition):
            name = type(extreme).__name__
            if name not in ("Max", "Min"):
                continue
            kept = list(extreme.args)
            for argument in extreme.args:
                others = [other for other in kept if other is not argument]
                pairs = [(other, argument) if name == "Max" else (argument, other) for other in others]
                if any(self._never_less(a, b) for a, b in pairs):
                    kept = others
            if len(kept) < len(extreme.args):
                condition = condition.xreplace({extreme: type(extreme)(*kept) if len(kept) > 1 else kept[0]})
                return condition if not isinstance(condition, sympy.Rel) else self._without_extremes(condition)
        return condition

    def _never_less(self, a: sympy.Expr, b: sympy.Expr) -> bool:
        return bool(self._decided(sympy.Ge(a, b, evaluate=False)) == sympy.true)

    def _multiples(self) -> dict[sympy.Symbol, int]:
        return {dim_symbol(name): dim.multiple_of for name, dim in self.dims.items()}

    def _decided(self, condition: sympy.Rel) -> sympy.Basic:
        """`true` or `false` where the bounds of its sides leave no choice."""
        for difference in spellings(condition.lhs - condition.rhs):
            low, high = value_range(difference, self._ranges())
            holds = None if low is None else outcome(condition, low, high)
            if holds is not None:
                return sympy.sympify(holds)
        return condition

    # ---- what the dims can say ----

    def _taken(self, condition: sympy.Basic, origin: Origin) -> bool:
        """Takes a condition into the ranges and multiples, if these can say it."""
        positive = positive_factors(condition, self._ranges())
        if positive:
            for symbol in positive:
                self._narrow(symbol.name, 1, None, origin)
            return True
        symbols = list(condition.free_symbols)
        if len(symbols) != 1:
            return False
        symbol = symbols[0]
        name = symbol.name
        k = divisor(condition, symbol)
        if k is not None:
            dim = self.dims[name]
            if name in self._bounded and dim.multiple_of % k:
                declared = self._declared[name]
                k = math.lcm(declared.multiple_of, k)
                _refuse(declared, f"must be a multiple of {k}", origin, hint=_MULTIPLE.format(declared=declared, k=k))
            self.dims[name] = replace(dim, multiple_of=math.lcm(dim.multiple_of, k))
            self._note(name, f"must be a multiple of {k}", origin)
            self._tighten(name)
            return True
        found = interval(condition, symbol)
        if found is not None:
            self._narrow(name, *found, origin)
            return True
        if isinstance(condition, sympy.Ne):
            end = self._beyond_end(condition, symbol)
            if end is not None:
                self._narrow(name, *end, origin)
                return True
        few = self._admitted(condition, name)
        if few is not None:
            self._narrow(name, *few, origin)
            return True
        return False

    def _beyond_end(self, condition: sympy.Ne, symbol: sympy.Symbol) -> tuple[int | None, int | None] | None:
        """The bounds that leave out the excluded size, where it is the first or the last one."""
        excluded = solved(condition.lhs - condition.rhs, symbol)
        dim = self.dims[symbol.name]
        if excluded is None:
            return None
        if excluded == dim.min:
            return dim.min + 1, None
        return (None, dim.max - 1) if dim.max is not None and excluded == dim.max else None

    def _admitted(self, condition: sympy.Basic, name: str) -> tuple[int, int] | None:
        """The least and the greatest admitted size, where there are few and those between are admitted too."""
        dim = self.dims[name]
        if dim.max is None or dim.max - dim.min >= _FEW:
            return None
        code = write(condition).code
        if code is None:
            return None
        sizes = range(-(-dim.min // dim.multiple_of) * dim.multiple_of, dim.max + 1, dim.multiple_of)
        try:
            admitted = [position for position, size in enumerate(sizes) if evaluate(code, {name: size})]
        except UndefinedError:
            return None
        if not admitted or admitted[-1] - admitted[0] >= len(admitted):
            return None
        if len(admitted) == len(sizes):
            return dim.min, dim.max
        return sizes[admitted[0]], sizes[admitted[-1]]

    def _narrow(self, name: str, low: int | None, high: int | None, origin: Origin) -> None:
        dim, declared = self.dims[name], self._declared[name]
        new = replace(dim)
        if low is not None and low > dim.min:
            asked_for = name in self._explicit_min and declared.min < low
            if asked_for and low > 2:
                _refuse(declared, f"must be at least {low}", origin)
            # Libraries ask for the size 1 also where it makes no difference. What the user asked for is tried out, and
            # refused where it does (see `probe`).
            if not asked_for:
                new = replace(new, min=low)
                self._note(name, f"must be at least {low}", origin, about="min")
        if high is not None and (dim.max is None or high < dim.max):
            if declared.max is not None and self._explicit_max:
                _refuse(declared, f"must be at most {high}", origin)
            new = replace(new, max=high)
            self._note(name, f"must be at most {high}", origin, about="max")
        self.dims[name] = new
        self._tighten(name)

    def _tighten(self, name: str) -> None:
        """No bound but the ones that are reached; refused where there is nothing between them."""
        dim = self.dims[name]
        step = dim.multiple_of
        if dim.max is not None and -(-dim.min // step) > dim.max // step:
            raise CaptureError(
                f"no size of dim {name!r} satisfies all conditions of the capture",
                hint="make this dim static in dynamic_shapes",
            )

    def _note(self, subject: str, text: str, origin: Origin, *, about: str = "") -> None:
        """Of several notes about one thing, the last one says most."""
        self._notes[subject, about or text] = Note(subject, f"{text}{origin}")


_NARROWER = (
    "declare this range, or change the model so that it takes the same path for all sizes; a branch on a size is "
    "captured as the example call takes it"
)
_MULTIPLE = (
    "declare Dim({declared.name!r}, ..., multiple_of={k}), or change the model so that it works for all sizes: pad the "
    "tensor to a multiple"
)


def _refuse(declared: Dim, demand: str, origin: Origin, *, hint: str = _NARROWER) -> None:
    raise CaptureError(
        f"dim {declared.name!r} is declared as {declared}, but in the captured program it {demand}{origin}", hint=hint
    )
