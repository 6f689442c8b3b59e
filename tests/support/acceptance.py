"""What calls a captured program takes: by its signature and checks, and by what torch assumed of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import sympy
import z3

from aotpack.archive.code import UndefinedError, evaluate
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes import dims as dims_module
from aotpack.export.symbolic_shapes.shape_env import Assumption
from aotpack.spec import Check, Code, Dim

# ---- in a call ------------------------------------------------------------------------------------------------------


def in_range(dim: Dim, size: int) -> bool:
    return dim.min <= size and (dim.max is None or size <= dim.max) and size % dim.multiple_of == 0


def satisfied(dims: Sequence[Dim], checks: Sequence[Check], sizes: Mapping[str, int]) -> bool:
    """Whether ranges, multiples and checks admit these sizes; a check without a value admits nothing."""
    if not all(in_range(dim, sizes[dim.name]) for dim in dims):
        return False
    try:
        return all(bool(evaluate(check.code, sizes)) for check in checks)
    except UndefinedError:
        return False


def accepts(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether a call with these dims is taken (the sizes of the inputs are then what the dims say)."""
    return satisfied(program.signature.dims, program.checks, sizes)


# ---- what torch assumed ---------------------------------------------------------------------------------------------


@dataclass
class Assumed:
    """What was simplified: the dims as declared, and the conditions over them."""

    dims: tuple[Dim, ...] = ()
    assumptions: list[Assumption] = field(default_factory=list)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether all conditions are true of these sizes, by sympy."""
        values = {sympy.Symbol(name, integer=True): sympy.Integer(size) for name, size in sizes.items()}
        outcomes = [assumption.expr.xreplace(values) for assumption in self.assumptions]
        assert all(outcome in (sympy.true, sympy.false) for outcome in outcomes), outcomes
        return all(in_range(dim, sizes[dim.name]) for dim in self.dims) and all(o == sympy.true for o in outcomes)


@contextmanager
def watched() -> Iterator[Assumed]:
    """What a capture inside simplifies last."""
    found = Assumed()
    original: Callable[..., Any] = dims_module.demands

    def watch(dims: Any, assumptions: Any, **options: Any) -> Any:
        found.dims, found.assumptions = tuple(dims), list(assumptions)
        return original(found.dims, found.assumptions, **options)

    with mock.patch.object(dims_module, "demands", watch):
        yield found


# ---- for z3 ---------------------------------------------------------------------------------------------------------

_RELATIONS: dict[type, Callable[[Any, Any], Any]] = {
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.Ge: lambda a, b: a >= b,
    sympy.Gt: lambda a, b: a > b,
    sympy.Le: lambda a, b: a <= b,
    sympy.Lt: lambda a, b: a < b,
}


def condition_to_z3(expr: sympy.Basic) -> Any:
    """A condition over integers; z3 divides as Python does where the divisor is positive."""
    if expr in (sympy.true, sympy.false):
        return z3.BoolVal(bool(expr))
    if isinstance(expr, sympy.Symbol):
        return z3.Int(expr.name)
    if isinstance(expr, sympy.Integer):
        return z3.IntVal(int(expr))
    arguments = [condition_to_z3(argument) for argument in expr.args]
    for kind, relation in _RELATIONS.items():
        if isinstance(expr, kind):
            return relation(*arguments)
    if isinstance(expr, sympy.And):
        return z3.And(*arguments)
    if isinstance(expr, sympy.Or):
        return z3.Or(*arguments)
    if isinstance(expr, sympy.Not):
        return z3.Not(arguments[0])
    if isinstance(expr, sympy.Add):
        return z3.Sum(arguments)
    if isinstance(expr, sympy.Mul):
        return z3.Product(arguments)
    if isinstance(expr, sympy.Pow):
        return z3.Product([arguments[0]] * int(expr.exp))
    name = type(expr).__name__
    if name in ("FloorDiv", "CleanDiv"):
        return arguments[0] / arguments[1]
    if name in ("Mod", "PythonMod"):
        return arguments[0] % arguments[1]
    if name in ("Max", "Min"):
        result = arguments[0]
        for other in arguments[1:]:
            result = z3.If(other > result if name == "Max" else other < result, other, result)
        return result
    raise NotImplementedError(name)


def code_to_z3(code: Code) -> Any:
    """The value of a code over integers and booleans."""
    stack: list[Any] = []
    binary: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "//": lambda a, b: a / b,
        "%": lambda a, b: a % b,
        "**": lambda a, b: z3.Product([a] * b.as_long()),
        "min": lambda a, b: z3.If(b < a, b, a),
        "max": lambda a, b: z3.If(a < b, b, a),
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        "and": z3.And,
        "or": z3.Or,
    }
    for item in code:
        if isinstance(item, bool):
            stack.append(z3.BoolVal(item))
        elif isinstance(item, int):
            stack.append(z3.IntVal(item))
        elif isinstance(item, str) and item.startswith("$"):
            stack.append(z3.Int(item[1:]))
        elif item == "neg":
            stack.append(-stack.pop())
        elif item == "not":
            stack.append(z3.Not(stack.pop()))
        elif isinstance(item, str) and item in binary:
            b = stack.pop()
            stack.append(binary[item](stack.pop(), b))
        else:
            raise NotImplementedError(item)
    (value,) = stack
    return value


def range_to_z3(dim: Dim) -> Any:
    size = z3.Int(dim.name)
    bounds = [size >= dim.min, size % dim.multiple_of == 0]
    return z3.And(*bounds, *([] if dim.max is None else [size <= dim.max]))


def prove(claim: Any, *, milliseconds: int = 10_000) -> None:
    """Fails with a counterexample unless the claim holds for all integers."""
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    solver.add(z3.Not(claim))
    outcome = solver.check()
    assert outcome == z3.unsat, f"{outcome}: {solver.model() if outcome == z3.sat else solver.reason_unknown()}"
