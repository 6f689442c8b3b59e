"""Symbols, their ranges and the guards of a trace.

Private interfaces touched (torch 2.11 to 2.13):
  torch.utils._sympy.{functions.PythonMod, numbers.int_oo, symbol.SymT}
  torch.utils._sympy.value_ranges.{ValueRanges, bound_sympy}
  torch._guards.{ShapeGuard, SLoc}
  torch._guards.TracingContext.extract_stack   what Dynamo is following
  torch.fx.experimental._config.backed_size_oblivious
  SymInt.node._expr
Under torch.fx.experimental, which torch may change: proxy_tensor.make_fx,
symbolic_shapes.{ShapeEnv, canonicalize_bool_expr, statically_known_true}
  proxy_tensor.{_build_proxy_for_sym_expr, _sym_register}   the first replaced while a model is captured
  torch._sym_{sqrt,cos,cosh,sin,sinh,tan,tanh,acos,asin,atan,log2}
"""

from __future__ import annotations

import contextlib
import operator
import traceback
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._guards import ShapeGuard, SLoc, TracingContext
from torch.fx.experimental import _config
from torch.fx.experimental.proxy_tensor import _sym_register, make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, canonicalize_bool_expr, statically_known_true
from torch.utils._sympy.functions import PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.symbol import SymT
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = [
    "PythonMod",
    "SLoc",
    "ShapeEnv",
    "ShapeGuard",
    "SymT",
    "ValueRanges",
    "bound_sympy",
    "canonicalize_bool_expr",
    "first_expression",
    "followed_stack",
    "int_oo",
    "make_fx",
    "products_of_two",
    "sizes_oblivious",
    "statically_known_true",
    "symbolic_function",
]


def followed_stack() -> traceback.StackSummary:
    """The stack of the code that Dynamo follows without running it."""
    return TracingContext.extract_stack()


def first_expression(size: Any) -> Any:
    """What a symbolic size was when it was made, before torch simplified it; None for other values."""
    return size.node._expr if isinstance(size, torch.SymInt) else None


def symbolic_function(name: str) -> Callable[..., Any] | None:
    """The function of the module `math` on symbolic numbers; None where torch has none."""
    found: Callable[..., Any] | None = getattr(torch, f"_sym_{name}", None)
    return found


def sizes_oblivious() -> contextlib.AbstractContextManager[None]:
    """While active, guards that ask whether a dynamic size is 0 or 1 are answered as if it is neither."""
    return _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined, no-any-return]


def products_of_two(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that puts an expression of sizes into a trace, which makes operators of two operands of products."""

    def build(tracer: Any, expr: Any, out: Any = None) -> Any:
        function = _OF_TWO.get(getattr(expr, "func", None))
        if function is None or len(expr.args) < 3 or tracer.sympy_expr_tracker.get(expr) is not None:
            return original(tracer, expr, out)
        first, *others = expr.args
        values = (build(tracer, first), build(tracer, expr.func(*others)))
        if any(value is None for value in values):
            return None
        if out is None:
            return function(*values)
        _sym_register(tracer, function, values, out)
        return out

    return build


_OF_TWO: dict[Any, Any] = {sympy.Mul: operator.mul, sympy.And: operator.and_, sympy.Or: operator.or_}
