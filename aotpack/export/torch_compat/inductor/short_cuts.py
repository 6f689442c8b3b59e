"""Analyses of TorchInductor that cost a good part of code generation and have a quick answer in most cases.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp.stride_at_vec_range
  torch._inductor.dtype_propagation.DtypePropagationOpsHandler.__init__
  torch._inductor.compile_fx.joint_graph_passes, torch._inductor.fx_passes.joint_graph.lazy_init
  sympy.simplify, as torch._inductor.sizevars calls it
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import sympy
import torch

from aotpack.export.torch_compat.patches import replaced

_PIECEWISE = ("Abs", "Max", "Min", "Where")

aten = torch.ops.aten
# Every pattern that `lazy_init` registers has one of them: attention and padding have products.
IN_PATTERNS = (
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.randperm.default,
)


@contextlib.contextmanager
def short_cuts() -> Iterator[None]:
    """While active, the same code is generated in less time."""
    from torch._inductor import compile_fx
    from torch._inductor.codegen import cpp
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
    from torch._inductor.fx_passes import joint_graph

    joint_graph_passes: Any = vars(compile_fx)["joint_graph_passes"]

    def joint_passes(graph: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
        if any(graph.graph.find_nodes(op="call_function", target=op) for op in IN_PATTERNS):
            return joint_graph_passes(graph, *args, **options)
        # Patterns are traced, half a second of them, before the first graph is compared with any.
        with replaced(joint_graph, "lazy_init", lambda *_: None):
            return joint_graph_passes(graph, *args, **options)

    # Some versions define it there, others import it.
    simplified: Any = vars(cpp)["stride_at_vec_range"]
    fill: Any = DtypePropagationOpsHandler.__init__
    filled = False

    def stride(index: sympy.Expr, var: sympy.Symbol, vec_length: int | None = None) -> Any:
        found, rest = split(index, var)
        return found if rest == 0 else found + simplified(rest, var, vec_length)

    def fill_once(self: Any) -> None:
        nonlocal filled
        if not filled:
            fill(self)
            filled = True

    simplify = sympy.simplify

    def simplified_in_part(expr: Any, *args: Any, **options: Any) -> Any:
        # Bounds of windows, reflections: sympy tries for seconds, and finds no more than terms that cancel.
        if piecewise(expr):
            return sympy.expand(expr)
        # Often they leave a number, which spares sympy the import of its physical units: a tenth of a second.
        if isinstance(expr, sympy.Expr) and (expanded := sympy.expand(expr)).is_Integer:
            return expanded
        return simplify(expr, *args, **options)

    with (
        replaced(compile_fx, "joint_graph_passes", joint_passes),
        replaced(cpp, "stride_at_vec_range", stride),
        replaced(DtypePropagationOpsHandler, "__init__", fill_once),
        replaced(sympy, "simplify", simplified_in_part),
    ):
        yield


def piecewise(expr: Any) -> bool:
    """Whether an expression has minima, maxima, magnitudes or cases, torch's own among them."""
    if not isinstance(expr, sympy.Basic):
        return False
    return any(type(part).__name__ in _PIECEWISE for part in sympy.preorder_traversal(expr))


def split(index: sympy.Expr, var: sympy.Symbol) -> tuple[sympy.Expr, sympy.Expr]:
    """How much the terms of `index` that are products with `var` grow with it; the sum of the others that have it."""
    found, rest = sympy.S.Zero, sympy.S.Zero
    for term in sympy.Add.make_args(index):
        if var not in term.free_symbols:
            continue
        others = [factor for factor in sympy.Mul.make_args(term) if factor != var]
        if any(var in factor.free_symbols for factor in others):
            rest += term
        else:
            found += sympy.Mul(*others)
    return _simplified(found), rest


@functools.lru_cache(1024)
def _simplified(factor: sympy.Expr) -> Any:
    simple = all(part.is_Symbol or part.is_Integer for part in sympy.Mul.make_args(factor))
    return factor if simple else sympy.simplify(factor)
