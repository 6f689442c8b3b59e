"""Conditions on sizes in one form, and the bounds that they set on a single size.

Conditions are sympy expressions over integers. torch's functions of integers (`FloorDiv`, `Mod`) are matched by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy

from aotpack.export.torch_compat.symbolic_shapes import PythonMod

_FLOATING = ("Float", "IntTrueDiv", "FloatTrueDiv", "FloatPow", "ToFloat", "TruncToFloat")


def is_integer(expr: sympy.Basic) -> bool:
    """Whether all of it is computed in integers."""
    return not any(
        type(part).__name__ in _FLOATING or type(part).__name__.startswith("Opaque")
        for part in sympy.preorder_traversal(expr)
    )


def conjuncts(expr: sympy.Basic) -> list[sympy.Basic]:
    """The conditions that must all hold."""
    if isinstance(expr, sympy.And):
        return [part for argument in expr.args for part in conjuncts(argument)]
    return [expr]


def without_special_cases(parts: list[sympy.Basic]) -> list[sympy.Basic]:
    """Without the alternatives `n == 2` that another one admits anyway."""
    kept = list(parts)
    for part in parts:
        if not isinstance(part, sympy.Eq) or not isinstance(part.lhs, sympy.Symbol) or not part.rhs.is_Integer:
            continue
        others = [other for other in kept if other is not part]
        if any(other.xreplace({part.lhs: part.rhs}) == sympy.true for other in others):
            kept = others
    return kept


def canonical(condition: sympy.Rel, multiples: Mapping[sympy.Symbol, int]) -> sympy.Basic:
    """One form for what can be written in many: integers, sorted sides, no common factors, divisions as remainders."""
    if not is_integer(condition):
        return condition
    divided = _as_remainder(condition)
    if divided is not None:
        condition = divided
    if isinstance(condition, (sympy.Eq, sympy.Ne)) and condition.rhs == 0 and type(condition.lhs).__name__ in _MODS:
        return _reduced_remainder(condition, multiples)
    difference = sympy.expand(condition.lhs - condition.rhs)
    coefficients = [term.as_coeff_Mul()[0] for term in sympy.Add.make_args(difference)]
    difference = sympy.expand(difference * sympy.ilcm(1, *(c.q for c in coefficients if c.is_Rational)))
    if isinstance(condition, sympy.Gt):
        difference, kind = difference - 1, sympy.Ge
    elif isinstance(condition, sympy.Lt):
        difference, kind = -difference - 1, sympy.Ge
    elif isinstance(condition, sympy.Le):
        difference, kind = -difference, sympy.Ge
    else:
        kind = type(condition)
    terms = sympy.Add.make_args(difference)
    constant = sympy.Add(*(term for term in terms if term.is_Rational))
    varying = [term for term in terms if not term.is_Rational]
    if not varying:
        return kind(constant, 0)
    factor = math.gcd(*(int(term.as_coeff_Mul()[0]) for term in varying))
    if kind is sympy.Ge:
        rest = sympy.floor(sympy.Rational(constant, factor))
    elif constant % factor:
        return sympy.sympify(kind is sympy.Ne)
    else:
        rest = constant / factor
    left = sympy.Add(*(term / factor for term in varying))
    if kind is not sympy.Ge and left.could_extract_minus_sign():
        left, rest = -left, -rest
    if kind is sympy.Ne and len(factors := sympy.factor_list(left + rest)[1]) > 1:
        # A product is not 0 where no factor is.
        return sympy.And(*(sympy.Ne(base, 0) for base, _ in factors))
    # Terms with a minus go to the other side.
    negative = [-term for term in sympy.Add.make_args(left) if term.could_extract_minus_sign()]
    positive = [term for term in sympy.Add.make_args(left) if not term.could_extract_minus_sign()]
    if not positive:
        return _without_division(_flipped(kind)(sympy.Add(*negative), rest))
    if not negative:
        return _without_division(kind(sympy.Add(*positive), -rest))
    return kind(sympy.Add(*positive), sympy.Add(*negative) - rest)


def _without_division(condition: sympy.Rel) -> sympy.Basic:
    """Bounds of `p` for bounds of `p // k`."""
    if not isinstance(condition, (sympy.Ge, sympy.Le, sympy.Eq)) or type(condition.lhs).__name__ not in _FLOORS:
        return condition
    value, divisor = condition.lhs.args
    if not divisor.is_Integer or divisor <= 0 or not condition.rhs.is_Integer:
        return condition
    least = sympy.Ge(value, condition.rhs * divisor)
    most = sympy.Le(value, condition.rhs * divisor + divisor - 1)
    if isinstance(condition, sympy.Eq):
        return sympy.And(least, most)
    return least if isinstance(condition, sympy.Ge) else most


def _flipped(kind: type[sympy.Rel]) -> type[sympy.Rel]:
    return sympy.Le if kind is sympy.Ge else kind


_MODS = ("Mod", "PythonMod")
_FLOORS = ("FloorDiv", "CleanDiv")


def _as_remainder(condition: sympy.Rel) -> sympy.Rel | None:
    """`p % d == 0` for `p == d * (p // d)`, in which one division is the only part that is not a polynomial."""
    if not isinstance(condition, (sympy.Eq, sympy.Ne)):
        return None
    difference = sympy.expand(condition.lhs - condition.rhs)
    floors = [part for part in difference.atoms(sympy.Function) if type(part).__name__ in _FLOORS]
    if len(floors) != 1:
        return None
    floor = floors[0]
    coefficient = difference.coeff(floor)
    rest = difference - coefficient * floor
    numerator, divisor = floor.args
    if not coefficient or rest.has(floor) or sympy.expand(rest * divisor + coefficient * numerator) != 0:
        return None
    if coefficient.free_symbols - divisor.free_symbols or not coefficient.is_nonzero:
        return None
    return type(condition)(remainder(numerator, divisor), 0)


def remainder(p: sympy.Expr, q: sympy.Expr) -> sympy.Expr:
    """p % q."""
    return PythonMod(p, q)


def _reduced_remainder(condition: sympy.Rel, multiples: Mapping[sympy.Symbol, int]) -> sympy.Basic:
    """`p % k == 0` without what k divides anyway."""
    value, modulus = condition.lhs.args
    kind = type(condition)
    if not modulus.is_Integer or modulus <= 0:
        return condition
    k = int(modulus)
    # With n = 8m, what is divisible by k in terms of m?
    terms: list[tuple[int, sympy.Expr, int]] = []
    for term in sympy.Add.make_args(sympy.expand(value)):
        coefficient, monomial = term.as_coeff_Mul()
        if not coefficient.is_Integer:
            return condition
        hidden = 1
        for base, exponent in monomial.as_powers_dict().items():
            if isinstance(base, sympy.Symbol) and exponent.is_Integer:
                hidden *= multiples.get(base, 1) ** int(exponent)
        if int(coefficient) * hidden % k:
            terms.append((int(coefficient) % k, monomial, hidden))
    if not terms:
        return sympy.sympify(kind is sympy.Eq)
    common = math.gcd(k, *(coefficient for coefficient, _, _ in terms))
    k //= common
    terms = [(coefficient // common, monomial, hidden) for coefficient, monomial, hidden in terms]
    if len(terms) == 1:
        coefficient, monomial, _ = terms[0]
        if monomial == 1:
            return sympy.sympify((coefficient % k != 0) == (kind is sympy.Ne))
        # What is left of the coefficient has no factor in common with k.
        return kind(remainder(monomial, sympy.Integer(k)), 0)
    return kind(remainder(sympy.Add(*(c * m for c, m, _ in terms)), sympy.Integer(k)), 0)


def divisor(condition: sympy.Basic, symbol: sympy.Symbol) -> int | None:
    """k of `n % k == 0`."""
    if not isinstance(condition, sympy.Eq) or condition.rhs != 0 or type(condition.lhs).__name__ not in _MODS:
        return None
    value, modulus = condition.lhs.args
    return int(modulus) if value == symbol and modulus.is_Integer else None


def _linear(expr: sympy.Expr, symbol: sympy.Symbol) -> tuple[int, int] | None:
    """(a, b) of a*n + b."""
    expanded = sympy.expand(expr)
    if not expanded.is_polynomial(symbol):
        return None
    coefficients = sympy.Poly(expanded, symbol).all_coeffs()
    if len(coefficients) != 2 or not all(c.is_Integer for c in coefficients):
        return None
    return int(coefficients[0]), int(coefficients[1])


def interval(condition: sympy.Basic, symbol: sympy.Symbol) -> tuple[int | None, int | None] | None:
    """The bounds that are all that a condition on one dim says; None where it says something else."""
    if not isinstance(condition, (sympy.Ge, sympy.Le, sympy.Eq)) or not is_integer(condition):
        return None
    difference = condition.lhs - condition.rhs
    linear = _linear(difference if not isinstance(condition, sympy.Le) else -difference, symbol)
    if linear is None:
        return None
    a, b = linear
    if isinstance(condition, sympy.Eq):
        return None if b % a else (-b // a, -b // a)
    # a*n + b >= 0
    return (-(b // a), None) if a > 0 else (None, b // -a)


def solved(expr: sympy.Expr, symbol: sympy.Symbol) -> int | None:
    linear = _linear(expr, symbol) if is_integer(expr) else None
    return None if linear is None or linear[1] % linear[0] else -linear[1] // linear[0]


def positive_factors(
    condition: sympy.Basic, ranges: Mapping[sympy.Symbol, tuple[int | None, int | None]]
) -> list[sympy.Symbol]:
    """The symbols of `a*b >= 1` or `a*b != 0` over sizes: none of them may be 0."""
    if isinstance(condition, sympy.Ge):
        if condition.rhs != 1:
            return []
    elif not isinstance(condition, sympy.Ne) or condition.rhs != 0:
        return []
    factors = condition.lhs.as_powers_dict()
    symbols = [base for base in factors if isinstance(base, sympy.Symbol)]
    if len(symbols) != len(factors) or any(not (factors[s].is_Integer and factors[s] > 0) for s in symbols):
        return []
    lows = [ranges.get(symbol, (None, None))[0] for symbol in symbols]
    return symbols if all(low is not None and low >= 0 for low in lows) else []


def spellings(difference: sympy.Expr) -> list[sympy.Expr]:
    """The same in forms of which one may have tighter bounds than the other."""
    if not is_integer(difference):
        return [difference]
    expanded = sympy.expand(difference)
    symbols = expanded.free_symbols
    if len(sympy.Add.make_args(expanded)) == 1 or not expanded.is_polynomial(*symbols):
        return [expanded]
    return [expanded, sympy.factor(expanded)]


def outcome(condition: sympy.Rel, low: Any, high: Any) -> bool | None:
    """The truth of a condition whose sides differ by something between these bounds; None where it is open."""
    if isinstance(condition, sympy.Ne):
        return True if low > 0 or high < 0 else (False if low == high == 0 else None)
    if isinstance(condition, sympy.Eq):
        return False if low > 0 or high < 0 else (True if low == high == 0 else None)
    if isinstance(condition, (sympy.Ge, sympy.Gt)):
        return _compare(low, high, isinstance(condition, sympy.Gt))
    return _compare(-high, -low, isinstance(condition, sympy.Lt))


def _compare(low: Any, high: Any, strict: bool) -> bool | None:
    """Whether something between the bounds is above 0 (`strict`) or at least 0."""
    if strict:
        return True if low > 0 else (False if high <= 0 else None)
    return True if low >= 0 else (False if high < 0 else None)
