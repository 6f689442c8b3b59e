"""Bytes of values. A dynamic size counts with its upper bound, or with the size of the example if it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch

from aotpack.export.ir.dims import dims_of_symbols
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.hints import size_hint, size_limit
from aotpack.export.symbolic_shapes.shape_env import expression


class Sizes:
    """Sizes of a program's values in bytes."""

    def __init__(self, program: Program) -> None:
        self._limits: Mapping[sympy.Symbol, int] = _limits(program)
        self._known: dict[sympy.Expr, int] = {}

    def size(self, size: int | torch.SymInt) -> int:
        """A size of a tensor as a number."""
        if isinstance(size, int):
            return size
        expr = expression(size)
        known = self._known.get(expr)
        if known is None:
            known = self._known[expr] = self._evaluate(size, expr)
        return known

    def shape(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The shape of a tensor as numbers."""
        return tuple(self.size(size) for size in tensor.shape)

    def numel(self, tensor: torch.Tensor) -> int:
        """The number of elements of a tensor."""
        number = 1
        for size in tensor.shape:
            number *= self.size(size)
        return number

    def nbytes(self, value: Any) -> int:
        """Bytes of a value of a node: of all tensors in it; a symbolic number has 8."""
        if isinstance(value, torch.Tensor):
            return self.numel(value) * value.dtype.itemsize
        if isinstance(value, (list, tuple)):
            return sum(self.nbytes(item) for item in value)
        return 8 if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else 0

    def _evaluate(self, size: torch.SymInt, expr: sympy.Expr) -> int:
        value = expr.xreplace({symbol: sympy.Integer(limit) for symbol, limit in self._limits.items()})
        if value.is_number and value.is_finite:
            return max(0, int(value))
        limit = size_limit(size)
        return max(0, size_hint(size) if limit is None else limit)


def _limits(program: Program) -> dict[sympy.Symbol, int]:
    """The greatest value of each symbol of the inputs that has an upper bound, else that in the example call."""
    maxima = {dim.name: dim.max for dim in program.signature.dims}
    found: dict[sympy.Symbol, int] = {}
    for symbol, ref in dims_of_symbols(program).items():
        maximum = maxima.get(ref.dim)
        if maximum is not None:
            found[symbol] = ref.mul * maximum + ref.add
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            symbol = expression(size) if isinstance(size, torch.SymInt) else None
            if isinstance(symbol, sympy.Symbol) and symbol not in found:
                found[symbol] = size_hint(size)
    return found
