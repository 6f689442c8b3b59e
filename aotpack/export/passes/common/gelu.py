"""Recognizes GELU written as separate operators, so that it can be fused into the product before it.

x * 0.5 * (1 + erf(x / sqrt(2))), and 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))), the approximation of
D. Hendrycks and K. Gimpel, 2016, as GPT-2 has it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of
from aotpack.export.passes.patterns.formulas import is_number, operands

aten = torch.ops.aten


def recompose_gelu(program: Program) -> Program:
    """Replaces formulas of GELU, exact and by tanh, by the operator."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.mul.Tensor):
        found = _gelu(node)
        if found is None or dtype_of(found[0]) != dtype_of(node):
            continue
        x, approximate = found
        rewriter.report(node, f"is gelu, approximate={approximate}")
        rewriter.replace(node, rewriter.call(aten.gelu.default, (x,), node, approximate=approximate))
    return rewriter.finish("recompose-gelu", f"found {rewriter.changed} GELUs")


def _gelu(node: torch.fx.Node) -> tuple[torch.fx.Node, str] | None:
    """(x, approximation) of 0.5 * x * (1 + f(x)), its factors in any order."""
    factors = _factors(node)
    half = [f for f in factors if is_number(f, 0.5)]
    gates = [(f, inner) for f in factors if (inner := _one_plus(f)) is not None]
    rest = [f for f in factors if isinstance(f, torch.fx.Node) and all(f is not gate for gate, _ in gates)]
    if len(factors) != 3 or len(half) != 1 or len(gates) != 1 or len(rest) != 1:
        return None
    x, inner = rest[0], gates[0][1]
    if inner.target is aten.erf.default and _is_scaled(inner.args[0], x, math.sqrt(0.5)):
        return x, "none"
    if inner.target is aten.tanh.default and _is_cubic(inner.args[0], x):
        return x, "tanh"
    return None


def _factors(value: Any) -> list[Any]:
    """A product of three as its factors, whichever two were multiplied first."""
    parts: list[Any] = list(operands(value, aten.mul.Tensor) or ())
    for index, part in enumerate(parts):
        inner = operands(part, aten.mul.Tensor)
        if inner is not None and any(is_number(p, 0.5) for p in inner):
            return [*inner, parts[1 - index]]
    if any(is_number(part, 0.5) for part in parts):
        for index, part in enumerate(parts):
            inner = operands(part, aten.mul.Tensor)
            if inner is not None:
                return [*inner, parts[1 - index]]
    return parts


def _is_cubic(value: Any, x: torch.fx.Node) -> bool:
    """Whether a value is sqrt(2/pi) * (x + 0.044715 * x^3)."""
    parts = operands(value, aten.mul.Tensor)
    if parts is None:
        return False
    for total, factor in (parts, parts[::-1]):
        terms = operands(total, aten.add.Tensor)
        if not is_number(factor, math.sqrt(2 / math.pi)) or terms is None:
            continue
        return any(one is x and _is_scaled_cube(other, x) for one, other in (terms, terms[::-1]))
    return False


def _is_scaled_cube(value: Any, x: torch.fx.Node) -> bool:
    parts = operands(value, aten.mul.Tensor)
    if parts is None:
        return False
    return any(is_number(factor, 0.044715) and _is_cube(cube, x) for cube, factor in (parts, parts[::-1]))


def _is_cube(value: Any, x: torch.fx.Node) -> bool:
    if not isinstance(value, torch.fx.Node) or value.target is not aten.pow.Tensor_Scalar:
        return False
    return value.args[0] is x and is_number(value.args[1], 3)


def _is_scaled(value: Any, x: torch.fx.Node, factor: float) -> bool:
    """Whether a value is x * factor, or x / (1/factor)."""
    if isinstance(value, torch.fx.Node) and value.target is aten.div.Tensor:
        return value.args[0] is x and is_number(value.args[1], 1 / factor)
    parts = operands(value, aten.mul.Tensor)
    return parts is not None and any(one is x and is_number(other, factor) for one, other in (parts, parts[::-1]))


def _one_plus(value: Any) -> torch.fx.Node | None:
    parts = operands(value, aten.add.Tensor)
    if parts is None:
        return None
    for one, other in (parts, parts[::-1]):
        if is_number(one, 1) and isinstance(other, torch.fx.Node):
            return other
    return None
