"""Operators that take functions, such as torch.cond and while_loop: which of them modules have code for.

In a graph their functions are graphs inside: attributes of the graph module, which the call reads as `get_attr` nodes.
"""

from __future__ import annotations

import torch.fx

from aotpack.errors import CaptureError
from aotpack.export.diagnostics import model_lines
from aotpack.export.ir.regions import is_region
from aotpack.export.torch_compat.operators import HigherOrderOperator

# Branches and loops of the module's own code. scan and map become loops when code is generated.
SUPPORTED = frozenset(["cond", "while_loop", "scan", "map_impl"])
# What to write instead of others that eager calls too. Keys are their names.
HINTS = {
    "associative_scan": 'pass combine_mode="generic", or call torch.cumsum, cumprod, cummax or logcumsumexp',
}
_OTHERWISE = "write it in Python with tensor operators, or leave that part outside the archive"


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
        name = node.target.name()
        if regions and name not in SUPPORTED:
            line = model_lines.of_trace(node.meta.get("stack_trace") or "")
            where = "" if line is None else f"\n  at {line.full}"
            raise CaptureError(f"{name} is not supported{where}", hint=HINTS.get(name, _OTHERWISE))
        for region in regions:
            refuse_operators_over_functions(getattr(graph_module, str(region.target)))
