"""The names of a program's symbols in the model, for the errors of its checks."""

from __future__ import annotations

import sympy
import torch

from aotpack.export.diagnostics import model_lines
from aotpack.export.diagnostics.check_messages import messages
from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import all_nodes
from aotpack.export.symbolic_shapes.shape_env import expression, graph_environment
from aotpack.export.torch_compat.inductor.asserts import Wording
from aotpack.spec import DimRef


def wording(program: Program) -> Wording:
    """Names of dims, origins of values out of the data, and messages of checks."""
    return Wording(_names(program), _origins(program.graph_module), messages(graph_environment(program.graph)))


def _names(program: Program) -> dict[str, str]:
    names: dict[str, str] = {}
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), program.signature.inputs, strict=True):
        value = node.meta["val"]
        if spec.dim is not None:
            names[str(expression(value))] = spec.dim
        if not isinstance(value, torch.Tensor):
            continue
        for size, element in zip(value.shape, spec.shape, strict=True):
            symbol = expression(size)
            if isinstance(symbol, sympy.Symbol) and isinstance(element, DimRef) and element == DimRef(element.dim):
                names.setdefault(str(symbol), element.dim)
    return names


def _origins(module: torch.fx.GraphModule) -> dict[sympy.Symbol, str]:
    origins: dict[sympy.Symbol, str] = {}
    for node in all_nodes(module):
        for symbol in node.meta.get("unbacked_bindings") or {}:
            line = model_lines.of_trace(node.meta.get("stack_trace") or "")
            known = line.short if line is not None else str(node.target).removesuffix(".default")
            origins[symbol] = f"data-dependent: {known}"
    return origins
