"""Lets TorchInductor's ahead-of-time wrapper take symbolic ints, and keeps the precision of numbers.

A placeholder may be a SymInt: the wrapper reads it from a tensor of rank 0 (`aoti_torch_item_int64`). TorchInductor
rejects such inputs before it generates code.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.compile_fx._extract_inputs_from_exported_gm   replaces what is no tensor by None
  torch._inductor.codegen.common.KernelArgs.cpp_argdefs   passes a SymFloat to a kernel as `float`
  torch._inductor.ir.IndexingConstant.make_loader   a symbolic number beside a tensor gets the tensor's dtype
  torch._inductor.virtualized.ops
  torch.utils._sympy.functions.Where
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
import torch.fx
from torch.utils._sympy.functions import Where

from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def numbers_allowed() -> Iterator[None]:
    """While active, graphs for TorchInductor may have SymInts as placeholders, and SymFloats are doubles in kernels."""
    from torch._inductor import compile_fx
    from torch._inductor.codegen.common import KernelArgs
    from torch._inductor.ir import IndexingConstant

    definitions: Any = KernelArgs.cpp_argdefs

    @functools.wraps(definitions)
    def in_double(self: Any, *args: Any, **kwargs: Any) -> Any:
        arg_defs, call_args, arg_types = definitions(self, *args, **kwargs)
        return [_double(text) for text in arg_defs], call_args, [_double(text) for text in arg_types]

    with (
        replaced(compile_fx, "_extract_inputs_from_exported_gm", _inputs),
        replaced(KernelArgs, "cpp_argdefs", in_double),
        replaced(IndexingConstant, "make_loader", _loader),
    ):
        yield


def _inputs(graph_module: torch.fx.GraphModule, _: Any) -> list[Any]:
    values = [node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")]
    return [value if isinstance(value, (torch.Tensor, torch.SymInt)) else None for value in values]


def _loader(self: Any) -> Callable[[Any], Any]:
    from torch._inductor.virtualized import ops

    # Eager computes `halves * number` in single precision, with the number as it is.
    dtype = torch.float32 if self.dtype in (torch.bfloat16, torch.float16) else self.dtype
    # A bool is a condition, which is no sympy.Expr: loops that are fused with this one compare only these.
    index = self.index if isinstance(self.index, sympy.Expr) else Where(self.index, 1, 0)
    return lambda _: ops.index_expr(index, dtype)


def _double(text: str) -> str:
    """A parameter of a kernel; those that are floats by value are symbols."""
    head, star, _ = text.partition("*")
    return text if star else head.replace("const float", "const double", 1)
