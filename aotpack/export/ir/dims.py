"""The symbols of a program's inputs in terms of the dims of its signature."""

from __future__ import annotations

import sympy

from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.spec import DimRef


def dims_of_symbols(program: Program) -> dict[sympy.Symbol, DimRef]:
    """What each symbol is that is the size of an input, or an input: mul * dim + add."""
    found: dict[sympy.Symbol, DimRef] = {}
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), program.signature.inputs, strict=True):
        value = node.meta["val"]
        if spec.dim is not None:
            found.setdefault(expression(value), DimRef(spec.dim))
        for size, element in zip(getattr(value, "shape", ()), spec.shape, strict=True):
            expr = expression(size)
            if isinstance(element, DimRef) and isinstance(expr, sympy.Symbol):
                found.setdefault(expr, element)
    return found
