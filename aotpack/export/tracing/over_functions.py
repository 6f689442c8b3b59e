"""Higher-order operators, such as torch.cond and while_loop: TorchInductor's code for them would call into libtorch."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.errors import CaptureError
from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat.operators import HigherOrderOperator

# What to write instead of the operators that eager calls too. Keys are their names.
HINTS = {
    "cond": "compute both branches and select with torch.where, or leave that part outside the archive",
    "while_loop": "write the loop in Python, with a number of steps that does not depend on the data",
    "flex_attention": "call F.scaled_dot_product_attention, with the score and block masks as a tensor for attn_mask",
}
_OTHERWISE = "write it in Python with tensor operators, or leave that part outside the archive"


def refuse_operators_over_functions(graph_module: torch.fx.GraphModule) -> None:
    """Refuses a flat graph with a graph inside.

    The example call finds most of them. torch.cond of a bool calls no operator in eager; it is one in the trace where
    the bool comes from sizes.

    Raises:
        CaptureError: naming the operator and the line of the model.
    """
    for node in graph_module.graph.nodes:
        if not isinstance(node.target, HigherOrderOperator):
            continue
        if not any(isinstance(_held(graph_module, source), torch.nn.Module) for source in node.all_input_nodes):
            continue
        name = node.target.name()
        line = model_lines.of_trace(node.meta.get("stack_trace") or "")
        where = "" if line is None else f"\n  at {line.full}"
        raise CaptureError(f"{name} is not supported{where}", hint=HINTS.get(name, _OTHERWISE))


def _held(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> object:
    return getattr(graph_module, str(node.target), None) if node.op == "get_attr" else None
