"""Which node TorchInductor is lowering.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.virtualized.V.graph.current_node
"""

from __future__ import annotations

from torch._inductor.virtualized import V


def lowered_stack_trace() -> str | None:
    """The stack trace of the node that is being lowered; None outside of a lowering, or where it has none."""
    node = getattr(V.graph, "current_node", None)
    trace: str | None = getattr(node, "meta", {}).get("stack_trace")
    return trace
