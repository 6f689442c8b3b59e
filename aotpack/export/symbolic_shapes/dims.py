"""Dynamic dims: the user's names for torch.export's symbols, and sizes as expressions of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from aotpack.archive.code import dims_of
from aotpack.errors import CaptureError
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.canonical import remainder
from aotpack.export.symbolic_shapes.declared import NUMBER, Declared, Note, Question
from aotpack.export.symbolic_shapes.expressions import write
from aotpack.export.symbolic_shapes.guards import Demands, demands, dim_symbol
from aotpack.export.symbolic_shapes.shape_env import Assumption, Origin, expression
from aotpack.spec import Check, Dim, DimRef, Expr, ShapeElement

__all__ = ["DimTable", "expression"]

Named = tuple[str, torch.Tensor | torch.SymInt]


class DimTable:
    """Names and ranges of the symbols in a captured program, and what it demands of them.

    `name_inputs` comes first; it reads all that torch assumed up to then.
    """

    def __init__(self, declared: Declared | None = None, ranges: Mapping[Any, Any] | None = None) -> None:
        """`ranges`: those of a program of which no shape environment knows more (`.pt2` files), by symbol."""
        self._declared = declared or Declared(())
        # A program of a file is not tried out.
        self._settle = declared is None
        self._known_ranges = ranges or {}
        self._env: Any = None
        # What each symbol is in terms of dims.
        self._values: dict[sympy.Symbol, sympy.Expr] = {}
        self._dims: dict[str, Dim] = {}
        self._numbers: set[str] = set()
        # Dims of the user's that are expressions of others, where they stand, and the line of the model.
        self._vanished: dict[str, tuple[sympy.Expr, str, str]] = {}
        # Those that a call gives: by a size, or as an int.
        self._given: set[str] = set()
        self._notes: list[Note] = []
        self._demands = Demands((), (), ())

    def name_inputs(self, inputs: Sequence[Named], sizes: Sequence[Mapping[int, DimRef]]) -> None:
        """Gives every symbol in the inputs' sizes a name: the user's, else one made of the input's.

        Args:
            inputs: name and fake tensor, or symbolic int, of each input.
            sizes: for each input: axis → the user's size there, `NUMBER` for an int.

        Raises:
            CaptureError: a dim of the user's has become a constant, its range or that of others cannot be what the user
                asked for, or the program relies on something that a call cannot be checked for.
        """
        self._env = shape_env.environment(value for _, value in inputs)
        found = [
            (name, axis, size, refs.get(axis))
            for (name, value), refs in zip(inputs, sizes, strict=True)
            for axis, size in _axes(value)
        ]
        for name, axis, size, ref in found:
            if ref is None and not expression(size).free_symbols and shape_env.first_symbol(size) is not None:
                self._notes.append(Note(_place(name, axis), f"is always {expression(size)}{self._because(size)}"))
        relations = self._name_declared(found)
        self._name_others(found)
        assumptions = [*self._assumptions(found), *relations]
        for _, axis, size, _ in found:
            ref = _affine(self._in_dims(expression(size)))
            if ref is not None and (axis != NUMBER or (ref.mul, ref.add) == (1, 0)):
                self._given.add(ref.dim)
        order = [symbol.name for _, _, size, _ in found for symbol in _symbols(self._in_dims(expression(size)))]
        dims = {name: self._dims[name] for name in dict.fromkeys(order)}
        self._demands = demands(
            dims.values(),
            assumptions,
            explicit_min=self._declared.explicit_min,
            bounded=self._declared.bounded,
            settle=self._settle,
        )
        self._tell_torch()

    def dims(self) -> tuple[Dim, ...]:
        """All dims, in order of first use."""
        return self._demands.dims

    def checks(self) -> tuple[Check, ...]:
        """What calls must satisfy beyond ranges, multiples and the sizes of the inputs."""
        return self._demands.checks

    def questions(self) -> tuple[Question, ...]:
        """What is to be tried out; also whether dims that have become expressions of others need to be that."""
        equal = [
            Question(sympy.Eq(dim_symbol(name), self._in_dims(expr)), line)
            for name, (expr, _, line) in self._vanished.items()
        ]
        return (*self._demands.questions, *equal)

    def notes(self) -> tuple[Note, ...]:
        """What became of the dims, for people."""
        return (*self._notes, *self._demands.notes)

    def size(self, size: Any, *, output: bool, where: str) -> ShapeElement:
        """A size for the manifest: an int, mul * dim + add, or an expression, in outputs also out of the data.

        Raises:
            CaptureError: a size of an input cannot be computed in a call.
        """
        element = shape_element(self._in_dims(expression(size)), self._dims)
        if isinstance(element, Expr) and element.code is None and not output:
            raise CaptureError(
                f"{where}: the size must be {element.text}, which cannot be computed in a call",
                hint="make this dim static in dynamic_shapes",
            )
        return element

    def without_source(self, element: ShapeElement) -> list[str]:
        """The dims in it whose value no call gives."""
        if isinstance(element, DimRef):
            names = {element.dim}
        else:
            names = set(dims_of(element.code or ())) if isinstance(element, Expr) else set()
        return sorted(names - self._given)

    # ---- names ----

    def _name_declared(self, found: Sequence[tuple[str, int, Any, DimRef | None]]) -> list[Assumption]:
        """Gives symbols the user's names; what more the user's sizes say."""
        said = [(name, axis, size, ref) for name, axis, size, ref in found if ref is not None]
        for _, axis, size, ref in sorted(said, key=lambda item: item[3].mul != 1 or item[3].add != 0):
            expr = expression(size)
            if isinstance(expr, sympy.Symbol) and expr not in self._values:
                self._values[expr] = ref.mul * dim_symbol(ref.dim) + ref.add
                if ref.dim not in self._dims:
                    self._enter(ref.dim, axis)
        assumptions: list[Assumption] = []
        for name, axis, size, ref in said:
            expr = self._in_dims(expression(size))
            where = _place(name, axis)
            if not expr.free_symbols:
                # What fixed one of the sizes that are the dim fixed the others too.
                same = [other for _, _, other, of in said if of.dim == ref.dim]
                line = next(filter(None, map(self._because, [size, *same])), "")
                self._refuse_constant(ref, int(expr), where, line)
            elif ref.dim in self._dims:
                relation = sympy.Eq(ref.mul * dim_symbol(ref.dim) + ref.add, expr)
                assumptions.append(Assumption(relation, Origin(f"dynamic_shapes, {where}")))
            else:
                value = sympy.expand((expr - ref.add) / ref.mul)
                alike = [other for _, _, other, _ in found if expression(other) == expression(size)]
                line = next(filter(None, map(self._because, [size, *alike])), "")
                self._vanished.setdefault(ref.dim, (value, where, line))
        return assumptions

    def _name_others(self, found: Sequence[tuple[str, int, Any, DimRef | None]]) -> None:
        taken = {*self._dims, *self._declared.dims}
        # A plain use gives the better name.
        for name, axis, size, _ in sorted(found, key=lambda item: not isinstance(expression(item[2]), sympy.Symbol)):
            for symbol in _symbols(expression(size)):
                if symbol in self._values:
                    continue
                fresh = re.sub(r"\W", "_", name if axis == NUMBER else f"{name}_{axis}")
                while fresh in taken:
                    fresh += "_"
                taken.add(fresh)
                self._values[symbol] = dim_symbol(fresh)
                self._enter(fresh, axis)
                if _affine(self._in_dims(expression(size))) is None:
                    raise CaptureError(
                        f"{_place(name, axis)} must be {self._in_dims(expression(size))}, and no single input "
                        "determines a part of it",
                        hint="make this dim static in dynamic_shapes",
                    )
        for dim, (expr, where, _) in self._vanished.items():
            text = write(self._in_dims(expr)).text
            self._notes.append(Note(dim, f"is always {text} ({where})"))

    def _enter(self, name: str, axis: int) -> None:
        declared = self._declared.dims.get(name)
        if axis == NUMBER:
            self._numbers.add(name)
            self._dims[name] = declared or Dim(name, -(1 << 63))
        else:
            self._dims[name] = declared or Dim(name)

    def _refuse_constant(self, ref: DimRef, value: int, where: str, line: str) -> None:
        """A dim that is a constant is an error, unless the user gave it one size."""
        declared = self._declared.dims.get(ref.dim, Dim(ref.dim))
        pinned = (value - ref.add) // ref.mul
        if declared.min == declared.max == pinned:
            return
        raise CaptureError(
            f"the model fixes the dim {ref.dim!r} ({where}) to {pinned}{line}",
            hint=f"make {ref.dim!r} static in dynamic_shapes, or find what in that line needs its value: a size that "
            "is combined with a fixed size, or Python code that turns it into a number (math.sqrt, int, range)",
        )

    def _because(self, size: Any) -> str:
        """The line of the model that made a size something else than a symbol of its own."""
        symbol = shape_env.first_symbol(size)
        line = None if self._env is None or symbol is None else shape_env.replacement_line(self._env, symbol)
        return "" if line is None else f"\n  at {line}"

    # ---- what torch assumed ----

    def _assumptions(self, found: Sequence[tuple[str, int, Any, DimRef | None]]) -> Iterator[Assumption]:
        env = self._env
        if env is None:
            return
        assumed = shape_env.guards(env)
        shape_env.mark_guards(env)
        for assumption in assumed:
            expr = self._of_dims(assumption)
            if expr is not None:
                yield Assumption(expr, assumption.origin)
        # torch gives int arguments the ranges of sizes, also those that are more than a dim by now.
        numbers = {shape_env.first_symbol(size) for _, axis, size, _ in found if axis == NUMBER}
        for symbol in env.var_to_range:
            if not shape_env.is_input(env, symbol) or symbol in numbers:
                continue
            expr = self._in_dims(shape_env.resolved(env, symbol))
            if not expr.free_symbols or not self._knows(expr) or self._is_number(expr):
                continue
            low, high = shape_env.bounds(env, symbol)
            first, last = shape_env.bound_origins(env, symbol)
            if low is not None:
                yield Assumption(sympy.Ge(expr, low), first)
            if high is not None:
                yield Assumption(sympy.Le(expr, high), last)
        for symbol, limits in self._known_ranges.items():
            expr = self._in_dims(sympy.sympify(symbol))
            if self._knows(expr) and expr.free_symbols and not self._is_number(expr):
                yield Assumption(sympy.Ge(expr, max(0, shape_env.finite(limits.lower) or 0)))
                if (last_size := shape_env.finite(limits.upper)) is not None:
                    yield Assumption(sympy.Le(expr, last_size))
        for name, (value, where, _) in self._vanished.items():
            declared = self._declared.dims.get(name)
            if declared is not None:
                expr = self._in_dims(value)
                yield from _declared_range(declared, expr, Origin(f"dynamic_shapes, {where}"))

    def _of_dims(self, assumption: Assumption) -> sympy.Basic | None:
        """A condition in terms of dims; None where it is about sizes that come out of the data, or about none."""
        expr = self._in_dims(assumption.expr)
        if self._knows(expr):
            return expr if expr.free_symbols or expr == sympy.false else None
        unknown = [symbol for symbol in assumption.expr.free_symbols if symbol not in self._values]
        if any(shape_env.is_input(self._env, symbol) for symbol in unknown):
            text = write(expr).text
            raise CaptureError(
                f"the capture relies on {text}, which depends on more than input sizes{assumption.origin}",
                hint="pass contiguous example inputs, or make their dims static in dynamic_shapes",
            )
        return None

    def _in_dims(self, expr: sympy.Basic) -> Any:
        value = expr.xreplace(self._values)
        return sympy.expand(value) if isinstance(value, (sympy.Add, sympy.Mul, sympy.Pow)) else value

    def _knows(self, expr: sympy.Basic) -> bool:
        return all(symbol.name in self._dims and symbol == dim_symbol(symbol.name) for symbol in _symbols(expr))

    def _is_number(self, expr: sympy.Basic) -> bool:
        """torch gives int arguments the ranges of sizes; what the model demands of them is in the guards."""
        return isinstance(expr, sympy.Symbol) and expr.name in self._numbers

    def _tell_torch(self) -> None:
        """Lets code generation know the ranges that calls are checked for."""
        ranges = {dim.name: dim for dim in self._demands.dims}
        for symbol, value in self._values.items():
            ref = _affine(value)
            if ref is None or self._env is None or ref.dim not in ranges:
                continue
            dim = ranges[ref.dim]
            high = None if dim.max is None else ref.mul * dim.max + ref.add
            shape_env.set_bounds(self._env, symbol, ref.mul * dim.min + ref.add, high)


def shape_element(expr: sympy.Expr, dims: Collection[str]) -> ShapeElement:
    """A size, as an expression of dims, for the manifest. It has no code where it is made of other symbols."""
    expr = sympy.expand(expr) if isinstance(expr, (sympy.Add, sympy.Mul, sympy.Pow)) else expr
    if expr.is_Integer:
        return int(expr)
    ref = _affine(expr)
    if ref is not None and ref.dim in dims and ref.mul > 0:
        return ref
    known = all(symbol.name in dims for symbol in _symbols(expr))
    written = write(expr)
    return Expr(written.text, written.code if known and written.kind is int else None)


def _declared_range(declared: Dim, value: sympy.Expr, where: Origin) -> Iterator[Assumption]:
    """What the declaration of a dim says of the expression that it always equals."""
    yield Assumption(sympy.Ge(value, declared.min), where)
    if declared.max is not None:
        yield Assumption(sympy.Le(value, declared.max), where)
    if declared.multiple_of != 1:
        yield Assumption(sympy.Eq(remainder(value, sympy.Integer(declared.multiple_of)), 0), where)


def _axes(value: torch.Tensor | torch.SymInt) -> list[tuple[int, Any]]:
    return list(enumerate(value.shape)) if isinstance(value, torch.Tensor) else [(NUMBER, value)]


def _place(name: str, axis: int) -> str:
    return f"input {name!r}" if axis == NUMBER else f"input {name!r}, axis {axis}"


def _symbols(expr: sympy.Basic) -> list[sympy.Symbol]:
    return sorted(expr.free_symbols, key=str)


def _affine(expr: sympy.Expr) -> DimRef | None:
    """The expression as mul * dim + add, if it is one."""
    symbols = _symbols(expr)
    if len(symbols) != 1 or not expr.is_polynomial(symbols[0]):
        return None
    coefficients = sympy.Poly(expr, symbols[0]).all_coeffs()
    if len(coefficients) != 2 or not all(coefficient.is_Integer for coefficient in coefficients):
        return None
    return DimRef(symbols[0].name, int(coefficients[0]), int(coefficients[1]))
