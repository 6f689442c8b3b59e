"""Operators that take functions, such as torch.cond and while_loop: which of them modules have code for.

In a graph their functions are graphs inside: attributes of the graph module, which the call reads as `get_attr` nodes.
"""

from __future__ import annotations

import torch.fx

from aotpack.errors import CaptureError
from aotpack.export.diagnostics import model_lines
from aotpack.export.ir.regions import calls_graphs, given_regions, inner_graph, is_region
from aotpack.export.torch_compat.operators import HigherOrderOperator, schema_or_none, written_arguments
from aotpack.export.tracing.inner_memory import memory

# What to write instead of those that eager calls too. Keys are their names.
HINTS = {
    "associative_scan": 'pass combine_mode="generic", or call torch.cumsum, cumprod, cummax or logcumsumexp',
}
_OTHERWISE = "write it in Python with tensor operators, or leave that part outside the archive"


def refuse_writes_from_inside(graph_module: torch.fx.GraphModule) -> None:
    """Refuses functions of operators that write to tensors from outside of them.

    Raises:
        CaptureError: naming the operator and the line of the model.
    """
    for call in filter(calls_graphs, graph_module.graph.nodes):
        for name in given_regions(call):
            inner = inner_graph(graph_module, name)
            refuse_writes_from_inside(inner)
            outside = {memory(node) for node in inner.graph.find_nodes(op="placeholder")} - {None}
            for node in inner.graph.nodes:
                schema = schema_or_none(node.target)
                written = [] if schema is None else written_arguments(schema, node.args, node.kwargs)
                if any(memory(argument) in outside for argument in written):
                    raise CaptureError(
                        f"a function of {call.target.name()} writes to a tensor from outside by {node.target}"
                        f"{_where(call)}",
                        hint="return the new value from the function: in loops, carry the tensor from step to step",
                    )


def refuse_operators_over_functions(graph_module: torch.fx.GraphModule) -> None:
    """Refuses a graph in which an operator that modules have no code for takes a graph.

    The example call finds most of them.

    Raises:
        CaptureError: naming the operator and the line of the model.
    """
    for node in graph_module.graph.nodes:
        if not isinstance(node.target, HigherOrderOperator):
            continue
        regions = [source for source in node.all_input_nodes if is_region(graph_module, source)]
        if regions and not calls_graphs(node):
            name = node.target.name()
            raise CaptureError(f"{name} is not supported{_where(node)}", hint=HINTS.get(name, _OTHERWISE))
        for region in regions:
            refuse_operators_over_functions(inner_graph(graph_module, str(region.target)))


def _where(call: torch.fx.Node) -> str:
    """The line of the model, for an error."""
    line = model_lines.of_trace(call.meta.get("stack_trace") or "")
    return "" if line is None else f"\n  at {line.full}"
