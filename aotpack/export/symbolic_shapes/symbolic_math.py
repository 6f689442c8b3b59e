"""The functions of the module `math` on symbolic numbers, while a model is traced."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied
from aotpack.export.torch_compat.symbolic_shapes import symbolic_function


@contextlib.contextmanager
def symbolic_math() -> Iterator[None]:
    """While active, functions of the module `math` take symbolic numbers, which otherwise would become constants.

    Names that were imported out of it (`from math import sqrt`) stay as they are.
    """
    functions = {
        f"math:{name}": functools.partial(_dispatching, symbolic=function)
        for name, function in _symbolic_functions().items()
    }
    with applied({**functions, places.SYMFLOAT_POW: _power}):
        yield


def _power(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def power(base: torch.SymFloat, exponent: Any) -> Any:
        # Of a negative number, too; and rounded as pow() rounds it.
        is_square = isinstance(exponent, (int, float)) and exponent == 2
        return operator.mul(base, base) if is_square else original(base, exponent)

    return power


@contextlib.contextmanager
def sym_functions_allowed() -> Iterator[None]:
    """While active, exported programs may hold all functions of symbolic numbers that torch can trace."""
    with applied(
        {
            places.VERIFIER_BUILTINS: _with_xor,
            # They are plain functions; that no others come in is seen when code is generated.
            places.VERIFIER_TYPES: _with_functions,
        }
    ):
        yield


def _with_xor(known: Any) -> Any:
    return lambda self: [*known(self), operator.xor]


def _with_functions(known: Any) -> Any:
    return lambda self: (*known(self), FunctionType)


def _dispatching(original: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def either(*args: Any) -> Any:
        if any(isinstance(arg, (torch.SymInt, torch.SymFloat)) for arg in args):
            return symbolic(*args)
        return original(*args)

    return either


def _symbolic_functions() -> Mapping[str, Callable[..., Any]]:
    names = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "acos", "asin", "atan", "log2")
    found = {name: symbolic_function(name) for name in names}
    functions: dict[str, Callable[..., Any]] = {name: f for name, f in found.items() if f is not None}
    log2 = functions.get("log2")
    if log2 is not None:
        functions["log"] = lambda x, base=math.e: log2(x) / _log2(log2, base)
        functions["log10"] = lambda x: log2(x) / math.log2(10)
    functions["exp"] = lambda x: math.e ** torch.sym_float(x)
    functions["fabs"] = lambda x: abs(torch.sym_float(x))
    functions["radians"] = lambda x: x * (math.pi / 180)
    functions["degrees"] = lambda x: x * (180 / math.pi)
    return functions


def _log2(log2: Callable[..., Any], base: Any) -> Any:
    return log2(base) if isinstance(base, (torch.SymInt, torch.SymFloat)) else math.log2(base)
