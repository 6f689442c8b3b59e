"""sympy expressions as text for people and code for the runtime."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatPow,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    Identity,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    OpaqueUnaryFn_exp,
    OpaqueUnaryFn_sqrt,
    PowByNatural,
    PythonMod,
    RoundToInt,
    ToFloat,
    TruncToInt,
    Where,
)

from aotpack.archive.code import evaluate, type_of
from aotpack.export.symbolic_shapes.expressions import write

n, m = sympy.symbols("n m", integer=True)

# An expression, its text, and its value for n = 7 and m = 3.
CASES: list[tuple[Any, str, Any]] = [
    (2 * n + m - 3, "m + 2*n - 3", 14),
    (1 - n, "1 - n", -6),
    (-n - 1, "-n - 1", -8),
    (n * (m + 1), "n*(m + 1)", 28),
    (-n * m, "-(m*n)", -21),
    (n**2 - m, "n**2 - m", 46),
    (n * sympy.Rational(1, 2), "n//2", 3),
    (sympy.ceiling(n / 2), "-(-n//2)", 4),
    (FloorDiv(n * m, 8) * 8, "8*(m*n//8)", 16),
    (FloorDiv(n - 20, 3), "(n - 20)//3", -5),
    (Mod(n * m, 8), "m*n % 8", 5),
    (PythonMod(m - n, 8), "(m - n) % 8", 4),
    (ModularIndexing(n, 4, 3), "n//4 % 3", 1),
    (PowByNatural(m, 2), "m**2", 9),
    (Max(n, m, 9), "max(9, m, n)", 9),
    (Min(n, m), "min(m, n)", 3),
    (sympy.Abs(m - n), "abs(m - n)", 4),
    (Identity(n), "n", 7),
    (TruncToInt(0.5 * ToFloat(n)), "int(0.5*n)", 3),
    (CeilToInt(IntTrueDiv(n, m)), "ceil(n/m)", 3),
    (FloorToInt(FloatTrueDiv(ToFloat(n), 2.5)), "floor(n/2.5)", 2),
    (RoundToInt(0.5 * ToFloat(n)), "round(0.5*n)", 4),
    (OpaqueUnaryFn_sqrt(ToFloat(n)), "sqrt(n)", math.sqrt(7)),
    (OpaqueUnaryFn_exp(m), "exp(m)", math.exp(3)),
    (FloatPow(ToFloat(n), 0.5), "n**0.5", 7**0.5),
    (sympy.Eq(Mod(n, 8), 0), "n % 8 == 0", False),
    (n > m, "n > m", True),
    (m >= n, "m >= n", False),
    ((n >= 3) & (m >= 4), "m >= 4 and n >= 3", False),
    (sympy.Or(n < 3, m < 4), "m < 4 or n < 3", True),
    (sympy.Not(sympy.Eq(n, 7) & sympy.Eq(m, 3)), "not (m == 3 and n == 7)", False),
    (sympy.Piecewise((n, n > 9), (m, True)), "(n if n > 9 else m)", 3),
    (Where(n > 3, n, m), "(n if n > 3 else m)", 7),
    (sympy.true, "True", True),
]


@pytest.mark.parametrize(("expr", "text", "value"), CASES, ids=[case[1] for case in CASES])
def test_text_and_code(expr: Any, text: str, value: Any) -> None:
    written = write(expr)
    assert written.text == text
    assert written.code is not None
    assert type_of(written.code, {"n", "m"}) is written.kind is type(value)
    assert evaluate(written.code, {"n": 7, "m": 3}) == pytest.approx(value)


@pytest.mark.parametrize(
    "expr",
    [
        sympy.Function("Unknown")(n),
        n + sympy.Function("Unknown")(m),
        sympy.Integer(2**63) + n,
        sympy.Pow(n, m),
        sympy.Add(*(sympy.Symbol("n", integer=True) ** k for k in range(2, 99))),
    ],
    ids=["unknown", "part", "64 bits", "negative exponents", "long"],
)
def test_what_has_text_alone(expr: Any) -> None:
    written = write(expr)
    assert written.code is None and written.text


leaves = st.one_of(st.sampled_from([n, m]), st.integers(-20, 20).map(sympy.Integer))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, k: FloorDiv(a, sympy.Integer(k)), inner, st.integers(1, 9)),
        st.builds(lambda a, k: PythonMod(a, sympy.Integer(k)), inner, st.integers(1, 9)),
        st.builds(Max, inner, inner),
        st.builds(Min, inner, inner),
        st.builds(lambda a, b, c: sympy.Piecewise((a, b > c), (c, True)), inner, inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(expressions, st.integers(0, 50), st.integers(0, 50))
def test_random_expressions_have_the_value_of_their_code_and_text(expr: Any, first: int, second: int) -> None:
    written = write(expr)
    assert written.code is not None
    wanted = int(expr.xreplace({n: sympy.Integer(first), m: sympy.Integer(second)}))
    assert evaluate(written.code, {"n": first, "m": second}) == wanted
    assert eval(written.text, {"n": first, "m": second}) == wanted
