"""The code of computed sizes and checks: what is accepted, and what it gives."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from aotpack.archive.code import CodeError, UndefinedError, dims_of, evaluate, type_of
from aotpack.spec import Code
from tests.support.codes import BOTTOM, TOP, random_code


def run(*code: Any, **dims: int) -> Any:
    """Type and value, after the code was found to be one."""
    kind = type_of(code, dims)
    value = evaluate(code, dims)
    assert type(value) is kind
    return value


@pytest.mark.parametrize(
    ("code", "value"),
    [
        # ints
        ((7, 2, "+"), 9),
        ((7, 2, "-"), 5),
        ((-7, 2, "*"), -14),
        ((-7, 2, "//"), -4),
        ((7, -2, "//"), -4),
        ((-7, 2, "%"), 1),
        ((7, -2, "%"), -1),
        ((BOTTOM, -1, "%"), 0),
        ((2, 10, "**"), 1024),
        ((0, 0, "**"), 1),
        ((-1, 1 << 60, "**"), 1),
        ((3, -4, "min"), -4),
        ((3, -4, "max"), 3),
        ((5, "neg"), -5),
        ((-5, "abs"), 5),
        # floats
        ((0.5, 0.25, "+"), 0.75),
        ((0.5, 0.25, "-"), 0.25),
        ((0.5, 0.25, "*"), 0.125),
        ((0.5, 0.25, "/"), 2.0),
        ((0.5, 0.25, "min"), 0.25),
        ((0.5, 0.25, "max"), 0.5),
        ((2.0, 0.5, "pow"), math.sqrt(2)),
        ((-1.5, "neg"), 1.5),
        ((-1.5, "abs"), 1.5),
        ((2.25, "sqrt"), 1.5),
        ((8.0, "log2"), 3.0),
        ((1.0, "exp", "log"), 1.0),
        *(((0.5, name), getattr(math, name)(0.5)) for name in ("sin", "cos", "tan", "asin", "acos", "atan")),
        *(((0.5, name), getattr(math, name)(0.5)) for name in ("sinh", "cosh", "tanh")),
        # from one to the other
        ((3, "float"), 3.0),
        ((2.7, "trunc"), 2),
        ((-2.7, "trunc"), -2),
        ((-2.7, "floor"), -3),
        ((2.2, "ceil"), 3),
        ((2.5, "round"), 2),
        ((3.5, "round"), 4),
        ((-2.5, "round"), -2),
        # conditions
        ((1, 2, "=="), False),
        ((1, 2, "!="), True),
        ((1, 1, "<"), False),
        ((1, 1, "<="), True),
        ((1.0, 2.0, "=="), False),
        ((1.0, 2.0, "!="), True),
        ((1.0, 2.0, "<"), True),
        ((2.0, 1.0, "<="), False),
        ((True, True, "=="), True),
        ((True, True, "!="), False),
        ((True, False, "and"), False),
        ((True, False, "or"), True),
        ((True, "not"), False),
        ((True, 1, 2, "select"), 1),
        ((False, 1.0, 2.0, "select"), 2.0),
    ],
)
def test_every_operator(code: Code, value: Any) -> None:
    assert run(*code) == value
    assert type(run(*code)) is type(value)


def test_dims() -> None:
    code = ("$batch", "$length", "*", 8, "%", 0, "==")
    assert run(*code, batch=3, length=8) is True
    assert run(*code, batch=3, length=9) is False
    assert dims_of(code) == {"batch", "length"}
    assert run("$a name with + and $", **{"a name with + and $": 5}) == 5


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ((TOP, 1, "+"), "64 bits"),
        ((BOTTOM, 1, "-"), "64 bits"),
        ((1 << 32, 1 << 31, "*"), "64 bits"),
        ((BOTTOM, -1, "//"), "64 bits"),
        ((BOTTOM, "neg"), "64 bits"),
        ((BOTTOM, "abs"), "64 bits"),
        ((2, 63, "**"), "64 bits"),
        ((2, TOP, "**"), "64 bits"),
        ((1, 0, "//"), "zero"),
        ((1, 0, "%"), "zero"),
        ((2, -1, "**"), "negative exponent"),
        ((9.3e18, "trunc"), "64 bits"),
        ((0.0, 0.0, "/", "round"), "nan"),
        ((-1.0, 0.0, "/", "floor"), "inf"),
        ((False, 1, 0, "//", 2, "select"), "zero"),  # both sides are computed
    ],
)
def test_undefined(code: Code, reason: str) -> None:
    assert type_of(code, ()) in (int, float, bool)
    with pytest.raises(UndefinedError, match=reason):
        evaluate(code, {})


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ((1.0, 0.0, "/"), math.inf),
        ((1.0, -0.0, "/"), -math.inf),
        ((0.0, 0.0, "/"), math.nan),
        ((-1.0, "sqrt"), math.nan),
        ((0.0, "log"), -math.inf),
        ((-1.0, "log2"), math.nan),
        ((1000.0, "exp"), math.inf),
        ((-1000.0, "exp"), 0.0),
        ((-1000.0, "sinh"), -math.inf),
        ((-1000.0, "cosh"), math.inf),
        ((2.0, "acos"), math.nan),
        ((1.0, 0.0, "/", "sin"), math.nan),
        ((0.0, -1.0, "pow"), math.inf),
        ((-0.0, -3.0, "pow"), -math.inf),
        ((-0.0, -2.0, "pow"), math.inf),
        ((-10.0, 999.0, "pow"), -math.inf),
        ((-10.0, 1000.0, "pow"), math.inf),
        ((-1.0, 0.5, "pow"), math.nan),
    ],
)
def test_floats_are_those_of_c(code: Code, value: float) -> None:
    result = run(*code)
    assert result == value or (math.isnan(result) and math.isnan(value))
    assert math.isnan(value) or math.copysign(1, result) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ((), "leaves 0 values"),
        ((1, 2), "leaves 2 values"),
        ((1, "+"), "needs 2 operands, there are 1"),
        (("not",), "needs 1 operands, there are 0"),
        ((1, "nothing"), "item 1: unknown operator 'nothing'"),
        ((1, ""), "unknown operator ''"),
        (("$other",), "no dim 'other'"),
        (("$",), "no dim ''"),
        ((1, 1.0, "+"), "'\\+' of int, float"),
        ((1, True, "+"), "'\\+' of int, bool"),
        ((1, 2, "/"), "'/' of int, int"),
        ((1.0, 2.0, "//"), "'//' of float, float"),
        ((1, "sqrt"), "'sqrt' of int"),
        ((1.0, "float"), "'float' of float"),
        ((1, "trunc"), "'trunc' of int"),
        ((1, 2, "and"), "'and' of int, int"),
        ((True, False, "<"), "'<' of bool, bool"),
        ((1, 2, 3, "select"), "'select' of int, int, int"),
        ((True, 2, 3.0, "select"), "'select' of bool, int, float"),
        ((True, 2, "select"), "'select' needs 3 operands"),
        ((TOP + 1,), "does not fit"),
        ((math.inf,), "not finite"),
        ((1,) * 33 + ("+",) * 32, "more than 32 values"),
        ((1, *(1, "+") * 128), "257 items"),
    ],
)
def test_what_is_no_code(code: Code, reason: str) -> None:
    with pytest.raises(CodeError, match=reason):
        type_of(code, {"batch"})


def test_the_limits_themselves_are_allowed() -> None:
    assert run(*(1,) * 32, *("+",) * 31) == 32
    assert run(1, "neg", *(1, "+") * 127) == 126


def test_random_codes_have_a_value_of_their_type_or_none() -> None:
    generator = random.Random()
    values = undefined = 0
    for _ in range(500):
        code = random_code(generator, ["n"])
        try:
            assert type(evaluate(code, {"n": generator.randrange(-5, 100)})) is type_of(code, {"n"}), code
            values += 1
        except UndefinedError:
            undefined += 1
    assert values > 100
    assert undefined > 0
