"""The postfix code of computed sizes and checks: what it may hold, and what it means.

A code is evaluated over the values of an entry's dims, on a stack. Its items are constants (int, float, bool), values
of dims (`"$name"`, ints) and operators (any other string), whose operands are the topmost values, the last one on top.
Three types exist: int (64 bits, signed), float (binary64) and bool; what converts one to another is an operator.
docs/format.md lists the operators; csrc/runtime/shape/code.cpp evaluates the same in calls.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from aotpack.spec import Code

MAX_ITEMS = 256
MAX_DEPTH = 32

Value = int | float | bool

_INT64_MAX = (1 << 63) - 1


class CodeError(ValueError):
    """The code is none: an unknown operator, operands of a wrong type, too few or too many values."""


class UndefinedError(ArithmeticError):
    """The code has no value for these dims: an int beyond 64 bits, a division by zero, a negative exponent of an int,
    or a float that is not an integer.
    """


def type_of(code: Code, dims: Collection[str]) -> type:
    """int, float or bool: the type of the one value that the code leaves.

    Raises:
        CodeError: the code is malformed, or names a dim that is not among `dims`.
    """
    if len(code) > MAX_ITEMS:
        raise CodeError(f"{len(code)} items; at most {MAX_ITEMS} are allowed")
    stack: list[type] = []
    for i, item in enumerate(code):
        try:
            _push_type(item, stack, dims)
        except CodeError as error:
            raise CodeError(f"item {i}: {error}") from None
    if len(stack) != 1:
        raise CodeError(f"leaves {len(stack)} values instead of one")
    return stack[0]


def dims_of(code: Code) -> frozenset[str]:
    """The names of the dims that the code uses."""
    return frozenset(item[1:] for item in code if isinstance(item, str) and item.startswith("$"))


def evaluate(code: Code, dims: Mapping[str, int]) -> Value:
    """The value of a code that `type_of` accepts.

    Raises:
        UndefinedError: the code has no value for these dims.
    """
    stack: list[Any] = []
    for item in code:
        if not isinstance(item, str):
            stack.append(item)
        elif item.startswith("$"):
            stack.append(dims[item[1:]])
        elif item == "select":
            condition, yes, no = stack[-3:]
            stack[-3:] = [yes if condition else no]
        else:
            count = 1 if item in _UNARY else 2
            operands = stack[-count:]
            _, function = _OPERATORS[item, *map(type, operands)]
            stack[-count:] = [function(*operands)]
    value: Value = stack[0]
    return value


def _push_type(item: int | float | bool | str, stack: list[type], dims: Collection[str]) -> None:
    if not isinstance(item, str):
        if isinstance(item, float) and not math.isfinite(item):
            raise CodeError(f"the constant {item} is not finite")
        if isinstance(item, int) and not -_INT64_MAX - 1 <= item <= _INT64_MAX:
            raise CodeError(f"the constant {item} does not fit 64 bits")
        stack.append(type(item))
    elif item.startswith("$"):
        if item[1:] not in dims:
            raise CodeError(f"there is no dim {item[1:]!r}")
        stack.append(int)
    elif item == "select":
        operands = _operands(item, 3, stack)
        if operands[0] is not bool or operands[1] is not operands[2]:
            raise CodeError(f"'select' of {_names(operands)}")
        stack[-3:] = operands[1:2]
    elif item in _UNARY or item in _BINARY:
        count = 1 if item in _UNARY else 2
        operands = _operands(item, count, stack)
        if (item, *operands) not in _OPERATORS:
            raise CodeError(f"{item!r} of {_names(operands)}")
        stack[-count:] = [_OPERATORS[item, *operands][0]]
    else:
        raise CodeError(f"unknown operator {item!r}")
    if len(stack) > MAX_DEPTH:
        raise CodeError(f"more than {MAX_DEPTH} values on the stack")


def _operands(item: str, count: int, stack: list[type]) -> list[type]:
    if len(stack) < count:
        raise CodeError(f"{item!r} needs {count} operands, there are {len(stack)}")
    return stack[-count:]


def _names(types: list[type]) -> str:
    return ", ".join(kind.__name__ for kind in types)


# ---- ints -----------------------------------------------------------------------------------------------------------


def _exact(function: Callable[..., int]) -> Callable[..., int]:
    """`function` on ints, refused where the result has no 64 bits or the divisor is 0."""

    def checked(*operands: int) -> int:
        try:
            result = function(*operands)
        except ZeroDivisionError:
            raise UndefinedError("division by zero") from None
        if not -_INT64_MAX - 1 <= result <= _INT64_MAX:
            raise UndefinedError("an int beyond 64 bits")
        return result

    return checked


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise UndefinedError("a negative exponent")
    if exponent > 63 and base not in (-1, 0, 1):
        raise UndefinedError("an int beyond 64 bits")  # without computing it
    result: int = base**exponent
    return result


def _to_int(function: Callable[[float], int]) -> Callable[[float], int]:
    def checked(value: float) -> int:
        if not math.isfinite(value):
            raise UndefinedError(f"{value} is not an int")
        return function(value)

    return _exact(checked)


# ---- floats: as in C, where nothing is an error ---------------------------------------------------------------------


def _like_c(function: Callable[..., float]) -> Callable[..., float]:
    """A function of `math`, with infinities and nan where that raises."""

    def total(*operands: float) -> float:
        try:
            return function(*operands)
        except OverflowError:
            return math.copysign(math.inf, operands[0]) if function is math.sinh else math.inf
        except ValueError:
            return math.nan

    return total


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: -math.inf if value == 0 else _like_c(function)(value)


def _float_power(base: float, exponent: float) -> float:
    odd = math.isfinite(exponent) and exponent % 2 == 1
    if base == 0 and exponent < 0:
        return math.copysign(math.inf, base) if odd else math.inf
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        return math.nan


# ---- operators ------------------------------------------------------------------------------------------------------

# By name and types of the operands: type of the result, function.
_OPERATORS: dict[tuple[object, ...], tuple[type, Callable[..., Any]]] = {
    ("float", int): (float, float),
    ("trunc", float): (int, _to_int(math.trunc)),
    ("floor", float): (int, _to_int(math.floor)),
    ("ceil", float): (int, _to_int(math.ceil)),
    ("round", float): (int, _to_int(round)),
    ("not", bool): (bool, operator.not_),
    ("and", bool, bool): (bool, lambda a, b: a and b),
    ("or", bool, bool): (bool, lambda a, b: a or b),
    ("neg", int): (int, _exact(operator.neg)),
    ("abs", int): (int, _exact(abs)),
    ("neg", float): (float, operator.neg),
    ("abs", float): (float, abs),
    ("**", int, int): (int, _exact(_power)),
    ("/", float, float): (float, _divide),
    ("pow", float, float): (float, _float_power),
    ("log", float): (float, _logarithm(math.log)),
    ("log2", float): (float, _logarithm(math.log2)),
}
_ON_INTS: dict[str, Callable[..., int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
_OPERATORS |= {(name, int, int): (int, _exact(function)) for name, function in _ON_INTS.items()}
_OPERATORS |= {
    (name, float, float): (float, function)
    for name, function in {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        # As std::min and std::max are: the first one where neither is less.
        "min": lambda a, b: b if b < a else a,
        "max": lambda a, b: b if a < b else a,
    }.items()
}
_OPERATORS |= {
    (name, float): (float, _like_c(getattr(math, name)))
    for name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
}
_OPERATORS |= {
    (name, kind, kind): (bool, function)
    for name, function in {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le}.items()
    for kind in (int, float, bool)
    if kind is not bool or name in ("==", "!=")
}

_UNARY = frozenset(str(key[0]) for key in _OPERATORS if len(key) == 2)
_BINARY = frozenset(str(key[0]) for key in _OPERATORS if len(key) == 3)
