"""Analyses of TorchInductor that cost a good part of code generation and have a quick answer in most cases.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp.stride_at_vec_range
  torch._inductor.dtype_propagation.DtypePropagationOpsHandler.__init__
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sympy

from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def short_cuts() -> Iterator[None]:
    """While active, the same code is generated in less time."""
    from torch._inductor.codegen import cpp
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
    from torch._inductor.sizevars import stride_at_vec_range

    simplified: Any = stride_at_vec_range
    fill: Any = DtypePropagationOpsHandler.__init__
    filled = False

    def stride(index: sympy.Expr, var: sympy.Symbol, vec_length: int | None = None) -> Any:
        found = coefficient(index, var)
        return simplified(index, var, vec_length) if found is None else found

    def fill_once(self: Any) -> None:
        nonlocal filled
        if not filled:
            fill(self)
            filled = True

    with replaced(cpp, "stride_at_vec_range", stride), replaced(DtypePropagationOpsHandler, "__init__", fill_once):
        yield


def coefficient(index: sympy.Expr, var: sympy.Symbol) -> sympy.Expr | None:
    """By how much `index` grows with `var`, if it is a sum of products of symbols and integers; otherwise None."""
    found = sympy.S.Zero
    for term in sympy.Add.make_args(index):
        factors = sympy.Mul.make_args(term)
        if not all(factor.is_Symbol or factor.is_Integer for factor in factors):
            return None
        if var in factors:
            if found != 0:
                return None  # the sum of two products may have a simpler form
            found = sympy.Mul(*(factor for factor in factors if factor != var))
    return found
