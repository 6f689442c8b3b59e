"""Recognizes SiLU and hardswish written as x times its gate, as ONNX files and older models have them, so that they can
be fused into the product before them.

x * sigmoid(x); x * hardsigmoid(x), x * relu6(x + 3) / 6.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of
from aotpack.export.passes.patterns.activations import ACTIVATION_CALLS, activation_name
from aotpack.export.passes.patterns.formulas import is_number, operands

aten = torch.ops.aten

_GATED = {"sigmoid": aten.silu.default, "hardsigmoid": aten.hardswish.default}


def recompose_gates(program: Program) -> Program:
    """Replaces formulas of SiLU and hardswish by the operators, where nothing else reads the gate."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.mul.Tensor, aten.div.Tensor):
        found = _scaled(node) or _gated(node)
        if found is None or dtype_of(found[0]) != dtype_of(node):
            continue
        x, operator = found
        rewriter.report(node, f"is {operator}")
        rewriter.replace(node, rewriter.call(operator, (x,), node))
    return rewriter.finish("recompose-gates", f"found {rewriter.changed} activations")


def _scaled(node: torch.fx.Node) -> tuple[torch.fx.Node, Any] | None:
    """The x of x * relu6(x + 3) / 6, and its operator."""
    product = _sixth(node)
    factors = operands(product, aten.mul.Tensor)
    if product is None or factors is None or len(product.users) != 1:
        return None
    for x, gate in (factors, factors[::-1]):
        if isinstance(x, torch.fx.Node) and _shifted(gate) is x:
            return x, aten.hardswish.default
    return None


def _gated(node: torch.fx.Node) -> tuple[torch.fx.Node, Any] | None:
    """The x of x * gate(x), and its operator."""
    factors = operands(node, aten.mul.Tensor)
    for x, gate in (factors, factors[::-1]) if factors is not None else ():
        if not isinstance(x, torch.fx.Node) or not isinstance(gate, torch.fx.Node) or len(gate.users) != 1:
            continue
        name = _activation(gate)
        if name in _GATED and gate.args[0] is x:
            return x, _GATED[name]
        if _shifted(_sixth(gate)) is x:
            return x, aten.hardswish.default
    return None


def _sixth(node: torch.fx.Node) -> torch.fx.Node | None:
    """What is divided by 6."""
    found = operands(node, aten.div.Tensor)
    if found is not None and is_number(found[1], 6) and isinstance(found[0], torch.fx.Node):
        return found[0]
    for value, factor in (found, found[::-1]) if (found := operands(node, aten.mul.Tensor)) is not None else ():
        if is_number(factor, 1 / 6) and isinstance(value, torch.fx.Node):
            return value
    return None


def _shifted(gate: Any) -> torch.fx.Node | None:
    """The x of relu6(x + 3), which only one reads."""
    if not isinstance(gate, torch.fx.Node) or len(gate.users) != 1 or _activation(gate) != "relu6":
        return None
    terms = operands(gate.args[0], aten.add.Tensor)
    for x, shift in (terms, terms[::-1]) if terms is not None else ():
        if is_number(shift, 3) and isinstance(x, torch.fx.Node):
            return x
    return None


def _activation(node: torch.fx.Node) -> str | None:
    return activation_name(node) if node.target in ACTIVATION_CALLS else None
