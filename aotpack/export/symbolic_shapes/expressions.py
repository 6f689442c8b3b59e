"""Sizes and conditions: sympy expressions become text for people and code for the runtime.

torch's own functions in them (torch.utils._sympy.functions) are identified by name, without importing that module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy

from aotpack.archive.code import UndefinedError, evaluate
from aotpack.spec import Code, DimRef, ShapeElement

MAX_ITEMS = 256
MAX_DEPTH = 32
_INT64 = 1 << 63

# How tightly an operator of the text binds.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(9)


def size_of(element: ShapeElement, sizes: Mapping[str, int]) -> int:
    """The size that an element of a shape stands for, given the sizes of the dims.

    Raises:
        UndefinedError: it comes out of the data.
    """
    if isinstance(element, int):
        return element
    if isinstance(element, DimRef):
        return element.mul * sizes[element.dim] + element.add
    if element.code is None:
        raise UndefinedError("a data-dependent size")
    return int(evaluate(element.code, sizes))


@dataclass(frozen=True)
class Written:
    """An expression, written.

    Attributes:
        text: for people, in Python's syntax.
        code: for the runtime (docs/format.md); None where it cannot be computed there.
        kind: int, float or bool, the type of the code's value.
        level: of the outermost operator of the text.
        depth: how many values the code needs on the stack.
    """

    text: str
    code: Code | None
    kind: type
    level: int = _ATOM
    depth: int = 1

    def inside(self, level: int) -> str:
        """The text as an operand of an operator of that level."""
        return self.text if self.level >= level else f"({self.text})"


def write(expr: sympy.Basic) -> Written:
    """The text and the code of an expression whose symbols are named after dims.

    Symbols whose names are no identifiers of dims, but of sizes out of the data, must be told apart by the caller.
    """
    written = _write(expr)
    if written.code is not None and (len(written.code) > MAX_ITEMS or written.depth > MAX_DEPTH):
        return Written(written.text, None, written.kind, written.level)
    return written


def _write(expr: sympy.Basic) -> Written:
    if isinstance(expr, sympy.Symbol):
        return Written(expr.name, (f"${expr.name}",), int)
    if expr in (sympy.true, sympy.false):
        return Written(str(bool(expr)), (bool(expr),), bool)
    if isinstance(expr, sympy.Integer):
        value = int(expr)
        return Written(str(value), (value,) if -_INT64 <= value < _INT64 else None, int, _ATOM if value >= 0 else _SIGN)
    if isinstance(expr, sympy.Float):
        number = float(expr)
        return Written(repr(number), (number,), float, _ATOM if number >= 0 else _SIGN)
    if isinstance(expr, sympy.Add):
        return _sum(expr)
    if isinstance(expr, sympy.Mul):
        return _product(expr)
    if isinstance(expr, sympy.Pow):
        return _power(expr)
    if isinstance(expr, sympy.Rel):
        return _relation(expr)
    if isinstance(expr, (sympy.And, sympy.Or)):
        return _junction(expr)
    if isinstance(expr, sympy.Not):
        operand = _write(expr.args[0])
        return _apply("not", bool, [operand], f"not {operand.inside(_NOT)}", _NOT)
    if isinstance(expr, sympy.ITE):
        return _select([_write(argument) for argument in expr.args])
    if isinstance(expr, sympy.Piecewise):
        return _piecewise(expr)
    if isinstance(expr, sympy.ceiling):
        return _write(-sympy.floor(-expr.args[0]))
    writer: _Writer | None = _FUNCTIONS.get(type(expr).__name__)
    arguments = [_write(argument) for argument in expr.args]
    if writer is not None:
        found = writer(arguments)
        if found is not None:
            return found
    return Written(_call(type(expr).__name__, arguments), None, int)


def _call(name: str, arguments: list[Written]) -> str:
    return f"{name}({', '.join(argument.text for argument in arguments)})"


def _apply(operator: str, kind: type, operands: list[Written], text: str, level: int = _ATOM) -> Written:
    """An operator of the code after its operands."""
    code: Code | None = ()
    for operand in operands:
        code = None if code is None or operand.code is None else (*code, *operand.code)
    depth = max(position + operand.depth for position, operand in enumerate(operands))
    return Written(text, None if code is None else (*code, operator), kind, level, depth)


def _converted(operand: Written) -> Written:
    """The operand as a float."""
    if operand.kind is float:
        return operand
    if operand.code is not None and len(operand.code) == 1 and type(operand.code[0]) is int:
        value = float(operand.code[0])
        return Written(operand.text, (value,), float, operand.level)
    code = None if operand.code is None or operand.kind is bool else (*operand.code, "float")
    return Written(operand.text, code, float, operand.level, operand.depth)


def _alike(operands: list[Written]) -> list[Written]:
    """Ints beside floats become floats."""
    return [_converted(o) for o in operands] if any(o.kind is float for o in operands) else operands


def _binary(operator: str, shown: str, level: int, a: Written, b: Written, kind: type | None = None) -> Written:
    a, b = _alike([a, b])
    text = f"{a.inside(level)}{shown}{b.inside(level + 1)}"
    return _apply(operator, kind or a.kind, [a, b], text, level)


# ---- sums and products ----------------------------------------------------------------------------------------------


def _sum(expr: sympy.Add) -> Written:
    # Something positive comes first, then the constant comes last.
    terms = sorted(
        expr.as_ordered_terms(), key=lambda term: (bool(term.could_extract_minus_sign()), bool(term.is_number))
    )
    denominator = _denominator(terms)
    if denominator > 1:
        whole = _write(sympy.Add(*(term * denominator for term in terms)))
        return _quotient(whole, denominator)
    result = _write(terms[0])
    for term in terms[1:]:
        if term.could_extract_minus_sign():
            result = _binary("-", " - ", _SUM, result, _write(-term))
        else:
            result = _binary("+", " + ", _SUM, result, _write(term))
    return result


def _denominator(terms: list[sympy.Expr]) -> int:
    """What makes all coefficients integers. Sizes are integers: a sum of fractions divides without a rest."""
    fractions = [term.as_coeff_Mul()[0] for term in terms]
    return int(reduce(sympy.ilcm, [f.q for f in fractions if isinstance(f, sympy.Rational)], 1))


def _product(expr: sympy.Mul) -> Written:
    coefficient, _ = expr.as_coeff_Mul()
    if coefficient == -1:
        operand = _write(-expr)
        return _apply("neg", operand.kind, [operand], f"-{operand.inside(_SIGN)}", _SIGN)
    if isinstance(coefficient, sympy.Rational) and coefficient.q > 1:
        whole = _write(expr * coefficient.q)
        return _quotient(whole, int(coefficient.q))
    factors = [_write(factor) for factor in expr.as_ordered_factors()]
    return reduce(lambda a, b: _binary("*", "*", _PRODUCT, a, b), factors)


def _quotient(whole: Written, divisor: int) -> Written:
    operator = "/" if whole.kind is float else "//"
    return _binary(operator, operator, _PRODUCT, whole, _write(sympy.Integer(divisor)))


def _power(expr: sympy.Pow) -> Written:
    base, exponent = (_write(argument) for argument in expr.args)
    text = f"{base.inside(_ATOM)}**{exponent.inside(_POWER)}"
    if isinstance(expr.exp, sympy.Integer) and expr.exp >= 0:
        if base.kind is int:
            return _apply("**", int, [base, exponent], text, _POWER)
        if base.kind is float:
            return _apply("pow", float, [base, _converted(exponent)], text, _POWER)
    return Written(text, None, base.kind, _POWER)


# ---- conditions -----------------------------------------------------------------------------------------------------

_RELATIONS: dict[type, tuple[str, bool]] = {
    sympy.Eq: ("==", False),
    sympy.Ne: ("!=", False),
    sympy.StrictLessThan: ("<", False),
    sympy.LessThan: ("<=", False),
    sympy.StrictGreaterThan: ("<", True),
    sympy.GreaterThan: ("<=", True),
}
_SHOWN_SWAPPED = {"<": ">", "<=": ">="}


def _relation(expr: sympy.Rel) -> Written:
    operator, swapped = _RELATIONS[type(expr)]
    # sympy turns `1 < 2*n` into `1/2 < n`.
    scale = _denominator([term for side in expr.args for term in sympy.Add.make_args(side)])
    a, b = _alike([_write(sympy.expand(side * scale) if scale > 1 else side) for side in expr.args])
    shown = _SHOWN_SWAPPED[operator] if swapped else operator
    text = f"{a.inside(_SUM)} {shown} {b.inside(_SUM)}"
    return _apply(operator, bool, [b, a] if swapped else [a, b], text, _COMPARE)


def _junction(expr: sympy.And | sympy.Or) -> Written:
    operator, level = ("and", _AND) if isinstance(expr, sympy.And) else ("or", _OR)
    operands = [_write(argument) for argument in sorted(expr.args, key=sympy.default_sort_key)]
    return reduce(lambda a, b: _binary(operator, f" {operator} ", level, a, b, bool), operands)


def _piecewise(expr: sympy.Piecewise) -> Written:
    *cases, last = expr.args
    if last.args[1] != sympy.true:
        return Written(str(expr), None, int)
    result = _write(last.args[0])
    for case in reversed(cases):
        result = _select([_write(case.args[1]), _write(case.args[0]), result])
    return result


def _select(arguments: list[Written]) -> Written:
    condition, yes, no = arguments
    yes, no = _alike([yes, no])
    text = f"{yes.inside(_OR)} if {condition.inside(_OR)} else {no.inside(_OR)}"
    return _apply("select", yes.kind, [condition, yes, no], f"({text})")


# ---- functions ------------------------------------------------------------------------------------------------------

_Writer = Callable[[list[Written]], Written | None]


def _ints(operator: str, shown: str, level: int = _PRODUCT) -> _Writer:
    def write_ints(arguments: list[Written]) -> Written | None:
        if any(argument.kind is not int for argument in arguments):
            return None
        return _binary(operator, shown, level, arguments[0], arguments[1])

    return write_ints


def _floats(operator: str, shown: str, level: int = _PRODUCT) -> _Writer:
    return lambda arguments: _binary(operator, shown, level, _converted(arguments[0]), _converted(arguments[1]))


def _of_float(operator: str, kind: type, name: str) -> _Writer:
    """A function of one float."""

    def write_call(arguments: list[Written]) -> Written | None:
        operand = _converted(arguments[0])
        return _apply(operator, kind, [operand], _call(name, arguments))

    return write_call


def _extreme(name: str) -> _Writer:
    def write_extreme(arguments: list[Written]) -> Written:
        found = reduce(lambda a, b: _apply(name, a.kind, [a, b], ""), _alike(arguments))
        return Written(_call(name, arguments), found.code, found.kind, _ATOM, found.depth)

    return write_extreme


def _identity(arguments: list[Written]) -> Written:
    return arguments[0]


def _absolute(arguments: list[Written]) -> Written:
    return _apply("abs", arguments[0].kind, arguments, _call("abs", arguments))


def _modular_indexing(arguments: list[Written]) -> Written | None:
    base, divisor, modulus = arguments
    quotient = _FUNCTIONS["FloorDiv"]([base, divisor])
    return None if quotient is None else _FUNCTIONS["Mod"]([quotient, modulus])


def _divided_up(arguments: list[Written]) -> Written | None:
    # ceil(a / b) = -(-a // b)
    a, b = arguments
    if a.kind is not int or b.kind is not int:
        return None
    quotient = _binary("//", "//", _PRODUCT, _apply("neg", int, [a], f"-{a.inside(_SIGN)}", _SIGN), b)
    return _apply("neg", int, [quotient], f"-({quotient.text})", _SIGN)


def _shifted(operator: str, shown: str) -> _Writer:
    def write_shift(arguments: list[Written]) -> Written | None:
        if any(argument.kind is not int for argument in arguments):
            return None
        power = _apply("**", int, [Written("2", (2,), int), arguments[1]], f"2**{arguments[1].inside(_POWER)}", _POWER)
        return _binary(operator, shown, _PRODUCT, arguments[0], power)

    return write_shift


def _rounded(name: str, operator: str) -> _Writer:
    """sympy's own floor: of floats, or of quotients of ints, which are written with `//` already."""
    of_float = _of_float(operator, int, name)
    return lambda arguments: arguments[0] if arguments[0].kind is int else of_float(arguments)


def _to_float(arguments: list[Written]) -> Written:
    converted = _converted(arguments[0])
    return Written(arguments[0].text, converted.code, float, arguments[0].level, converted.depth)


def _trunc_to_float(arguments: list[Written]) -> Written:
    truncated = _apply("trunc", int, [_converted(arguments[0])], _call("trunc", arguments))
    return _apply("float", float, [truncated], truncated.text)


_FUNCTIONS: dict[str, Any] = {
    "FloorDiv": _ints("//", "//"),
    "CleanDiv": _ints("//", "//"),
    "CeilDiv": _divided_up,
    "Mod": _ints("%", " % "),
    "PythonMod": _ints("%", " % "),
    "ModularIndexing": _modular_indexing,
    "PowByNatural": _ints("**", "**", _POWER),
    "LShift": _shifted("*", "*"),
    "RShift": _shifted("//", "//"),
    "Max": _extreme("max"),
    "Min": _extreme("min"),
    "Abs": _absolute,
    "Identity": _identity,
    "Where": _select,
    "ToFloat": _to_float,
    "IntTrueDiv": _floats("/", "/"),
    "FloatTrueDiv": _floats("/", "/"),
    "FloatPow": _floats("pow", "**", _POWER),
    "TruncToInt": _of_float("trunc", int, "int"),
    "TruncToFloat": _trunc_to_float,
    "FloorToInt": _of_float("floor", int, "floor"),
    "CeilToInt": _of_float("ceil", int, "ceil"),
    "RoundToInt": _of_float("round", int, "round"),
    "floor": _rounded("floor", "floor"),
}
_FUNCTIONS |= {
    f"OpaqueUnaryFn_{name}": _of_float(name, float, name)
    for name in (
        *("sqrt", "exp", "log", "log2", "sin", "cos", "tan"),
        *("asin", "acos", "atan", "sinh", "cosh", "tanh"),
    )
}
