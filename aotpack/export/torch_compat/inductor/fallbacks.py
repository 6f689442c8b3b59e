"""The operators that generated code calls, and their places in the model.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.graph.GraphLowering.operations
  torch._inductor.ir.ExternKernel.{op_overload, cpp_kernel_name, python_kernel_name, origins, inputs}
  torch._inductor.ir.Conditional.{true_subgraph, false_subgraph}, WhileLoop.{cond_subgraph, body_subgraph}
  torch._inductor.ir.FallbackKernel.outputs, and of a buffer: get_size, get_dtype
  node.meta["original_aten"], which tracing sets: the operator that a decomposition has replaced
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from aotpack.export.diagnostics import model_lines
from aotpack.export.diagnostics.model_lines import ModelLine

# What C functions and names of kernels have around an operator's name.
_AROUND = re.compile(r"^(?:torch\.ops\.|extern_kernels\.|at::_ops::|at::|aoti_torch_)+(?:cpu_|cuda_)?|::call$")
_ENDINGS = ("_default", "_out")
# What branches and loops have graphs in.
_GRAPHS = ("true_subgraph", "false_subgraph", "cond_subgraph", "body_subgraph")


@dataclass(frozen=True)
class Fallback:
    """One call of an operator.

    Attributes:
        operator: `aten.bincount`, with its overload unless that is the default. Of an operator of this project, the one
            that it replaces, if that is known.
        keys: under which its C function may be known, see `key`.
        module: path and class of the innermost module that it is in, `heads.0 (Head)`; "" where there is none.
        line: of the model.
        nbytes: of the tensors that it reads and writes; None where sizes are dynamic.
    """

    operator: str
    keys: frozenset[str]
    module: str
    line: ModelLine | None
    nbytes: int | None


def key(name: str) -> str:
    """What the names of one operator have in common: `aoti_torch_cpu_mm_out`, `at::mm_out` and `aten.mm` → `mm`."""
    name = _AROUND.sub("", name)
    name = re.sub(r"^(?:aten|aotpack)(?:\.|::)", "", name)
    name = re.sub(r"\.|::", "_", name)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def fallbacks(graph: Any) -> list[Fallback]:
    """Every call of an operator in a lowered graph (`GraphLowering`) and in those inside, in order."""
    from torch._inductor import ir

    found: list[Fallback] = []
    for operation in graph.operations:
        if not isinstance(operation, ir.ExternKernel):
            continue
        inside = [getattr(operation, name, None) for name in _GRAPHS]
        if any(inside):
            found += [call for inner in inside if inner is not None for call in fallbacks(inner.graph)]
            continue
        overload = getattr(operation, "op_overload", None)
        names = [getattr(operation, "cpp_kernel_name", None), getattr(operation, "python_kernel_name", None)]
        node = _node(operation, overload)
        if isinstance(overload, torch._ops.OpOverload):
            operator = _shown(overload, node)
            names.append(str(overload))
        else:
            operator = next((f"aten.{key(name)}" for name in names if name), "")
        if operator:
            module = _module(node.meta.get("nn_module_stack")) if node is not None else ""
            line = model_lines.of_trace(node.meta.get("stack_trace") or "") if node is not None else None
            keys = frozenset(key(name) for name in names if name)
            found.append(Fallback(operator, keys, module, line, _nbytes(operation)))
    return found


def _shown(overload: Any, node: torch.fx.Node | None) -> str:
    """An operator's name in reports."""
    replaced = node.meta.get("original_aten") if node is not None else None
    if overload.namespace == "aotpack" and isinstance(replaced, torch._ops.OpOverload):
        overload = replaced
    return str(overload).removesuffix(".default").removesuffix(".out").removeprefix("aotpack.")


def _nbytes(operation: Any) -> int | None:
    total = 0
    for buffer in _flat([operation.inputs, getattr(operation, "outputs", None) or operation]):
        try:
            sizes, dtype = buffer.get_size(), buffer.get_dtype()
        except (AttributeError, NotImplementedError):
            # Several results, which are buffers themselves, or none.
            continue
        if not all(isinstance(size, (int, sympy.Integer)) for size in sizes):
            return None
        total += math.prod(map(int, sizes)) * dtype.itemsize
    return total


def _flat(value: Any) -> list[Any]:
    """What is in lists of lists."""
    return [item for each in value for item in _flat(each)] if isinstance(value, (list, tuple)) else [value]


def _node(operation: Any, overload: Any) -> torch.fx.Node | None:
    """The node that an operation was made for; others may have been fused into it."""
    origins = list(operation.origins or ())
    of_operator = [node for node in origins if node.target == overload]
    with_line = [node for node in origins if node.meta.get("stack_trace")]
    return next(iter(of_operator or with_line or origins), None)


def _module(stack: Any) -> str:
    """The innermost module of a node's stack {key: (path, class)}."""
    if not stack:
        return ""
    path, kind = list(stack.values())[-1][:2]
    path = str(path)
    name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", "")
    name = name.rpartition(".")[2]
    if name == "_Function":
        # A function: ours around it is nothing that a user knows.
        return path
    return f"{path} ({name})" if path else name
