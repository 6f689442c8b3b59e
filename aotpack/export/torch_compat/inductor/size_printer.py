"""Makes TorchInductor print the arithmetic of sizes as C++ with the semantics of the model's Python.

Sizes and numbers are sympy expressions to TorchInductor. Its printer has no `exp`, no `log`, no power of another base
than 2, writes Python for `sin`, and leaves out the parentheses of a true division. Before torch 2.13, it takes the
smaller and the larger of fractions as whole numbers.

Private interfaces touched (torch 2.11 to 2.13):
  torch.utils._sympy.printers.CppPrinter._print_*
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._sympy.printers import CppPrinter

from aotpack.export.torch_compat.patches import replaced

_UNARY = ("exp", "log", "log2", "sin", "asinh")


@contextlib.contextmanager
def sizes_in_cpp() -> Iterator[None]:
    """While active, all arithmetic that torch.export knows of sizes can be printed."""
    with contextlib.ExitStack() as stack:
        for name in _UNARY:
            stack.enter_context(replaced(CppPrinter, f"_print_OpaqueUnaryFn_{name}", _unary(name)))
        for name, function in (("IntTrueDiv", _true_division), ("PowByNatural", _power), ("FloatPow", _float_power)):
            stack.enter_context(replaced(CppPrinter, f"_print_{name}", function))
        for name in ("Min", "Max"):
            printer = _extreme(name.lower(), getattr(CppPrinter, f"_print_{name}"))
            stack.enter_context(replaced(CppPrinter, f"_print_{name}", printer))
        yield


def _unary(name: str) -> Callable[[Any, Any], str]:
    def print_(self: Any, expr: Any) -> str:
        return f"std::{name}(static_cast<double>({self._print(expr.args[0])}))"

    return print_


def _extreme(name: str, whole: Callable[[Any, Any], str]) -> Callable[[Any, Any], str]:
    def print_(self: Any, expr: Any) -> str:
        if expr.is_integer:
            return whole(self, expr)
        arguments = ", ".join(f"static_cast<double>({self._print(argument)})" for argument in expr.args)
        return f"std::{name}<double>({{{arguments}}})"

    return print_


def _true_division(self: Any, expr: Any) -> str:
    a, b = (self._print(argument) for argument in expr.args)
    return f"(static_cast<double>({a}) / static_cast<double>({b}))"


def _power(self: Any, expr: Any) -> str:
    base, exponent = (self._print(argument) for argument in expr.args)
    return (
        "[](uint64_t b, int64_t e) { uint64_t r = 1; for (; e > 0; e >>= 1, b *= b) if (e & 1) r *= b; "
        f"return static_cast<int64_t>(r); }}(static_cast<uint64_t>({base}), {exponent})"
    )


def _float_power(self: Any, expr: Any) -> str:
    base, exponent = (self._print(argument) for argument in expr.args)
    return f"std::pow(static_cast<double>({base}), static_cast<double>({exponent}))"
