"""Comments in generated code: what each kernel computes, and the memory that is made for values.

TorchInductor knows this while it generates code, and does not say it in the C++ of CPUs. A comment is JSON behind
`MARK`; `aotpack.export.backends.cpu.calls` reads and removes it.

  {"nodes": [["", "linear"], …], "operators": ["aten.linear"], "makes": {"buf3": 4096}}   before the call of a kernel
  {"makes": {"buf4": 128}}                                                                where memory is allocated

A node is the name of a graph inside and the name of the node in it; "" is the graph that `generate` was given. Bytes
are those at the sizes of the example.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp.CppScheduling.codegen_comment
  torch._inductor.ir.{ExternKernel.codegen_comment, ExternKernel.origin_node, MultiOutputLayout, NoneLayout,
    MutationLayoutSHOULDREMOVE, NonOwningLayout}
  torch._inductor.utils.aggregate_origins
  torch._inductor.virtualized.V.graph.{name, sizevars.shape_env}
  torch.fx.traceback.NodeSource.{name, from_node}
  torch.fx.experimental.symbolic_shapes.ShapeEnv.{replace, backed_var_to_val, var_to_val}
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy
import torch

from aotpack.export.torch_compat.patches import replaced

MARK = "// aotpack "

# For sizes out of the data.
_UNKNOWN = 16


def note(**what: Any) -> str:
    """The comment that says this."""
    return MARK + json.dumps(what)


@contextlib.contextmanager
def kernels_annotated() -> Iterator[None]:
    """While active, the calls of kernels in code for CPUs have comments in front of them."""
    from torch._inductor import ir
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.utils import aggregate_origins
    from torch._inductor.virtualized import V

    of_loops: Any = CppScheduling.codegen_comment
    of_calls: Any = ir.ExternKernel.codegen_comment

    @functools.wraps(of_loops)
    def comment_loops(self: Any, node_schedule: Any, kernel_name: str | None = None) -> None:
        of_loops(self, node_schedule, kernel_name)
        V.graph.wrapper_code.make_comment(note(**_described(aggregate_origins(node_schedule))))

    @functools.wraps(of_calls)
    def comment_calls(self: Any, wrapper: Any, kernel_name: str | None = None) -> None:
        of_calls(self, wrapper, kernel_name)
        # `origins` has producers of operands too.
        origin = self.origin_node
        origins = aggregate_origins(self) if origin is None else [origin]
        wrapper.make_comment(note(**_described(origins), makes=dict(_results(self))))

    with (
        replaced(CppScheduling, "codegen_comment", comment_loops),
        replaced(ir.ExternKernel, "codegen_comment", comment_calls),
    ):
        yield


def allocation(buffer: Any) -> str:
    """The comment behind the allocation of a buffer."""
    return note(makes={buffer.get_name(): _nbytes(buffer)})


def _described(origins: Iterable[torch.fx.Node]) -> Mapping[str, Any]:
    from torch._inductor.virtualized import V

    calls = [node for node in origins if node.op == "call_function"]
    graph = getattr(V.graph, "name", None) or ""
    nodes = {_source(node): None for node in calls}
    operators = {str(op.overloadpacket): None for node in calls if (op := node.meta.get("original_aten")) is not None}
    return {"nodes": [[graph, name] for name in sorted(nodes)], "operators": sorted(operators)}


def _source(node: torch.fx.Node) -> str:
    """The name of the node, in the graph that TorchInductor was given, that a node was made from."""
    sources = node.meta.get("from_node")
    return str(sources[0].name) if sources else node.name


def _results(kernel: Any) -> Iterator[tuple[str, int]]:
    """The tensors that a call makes."""
    from torch._inductor import ir

    if isinstance(kernel.layout, ir.MultiOutputLayout):
        for output in getattr(kernel, "outputs", None) or ():
            if isinstance(output, ir.Buffer) and isinstance(output.layout, ir.Layout):
                yield output.get_name(), _nbytes(output)
        return
    elsewhere = (ir.NoneLayout, ir.MutationLayoutSHOULDREMOVE, ir.NonOwningLayout)
    if isinstance(kernel.layout, ir.Layout) and not isinstance(kernel.layout, elsewhere):
        yield kernel.get_name(), _nbytes(kernel)


def _nbytes(buffer: Any) -> int:
    from torch._inductor.virtualized import V

    env = V.graph.sizevars.shape_env
    known = getattr(env, "backed_var_to_val", None) or env.var_to_val
    number = sympy.Integer(buffer.get_dtype().itemsize)
    for size in buffer.get_size():
        expr = env.replace(sympy.sympify(size)).xreplace(dict(known))
        number *= expr.xreplace({symbol: sympy.Integer(_UNKNOWN) for symbol in expr.free_symbols})
    return max(0, int(number)) if number.is_finite else 0
