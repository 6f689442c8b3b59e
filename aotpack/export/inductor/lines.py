"""Which line of the model TorchInductor is at.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.virtualized.V.graph.current_node
"""

from __future__ import annotations

from torch._inductor.virtualized import V

from aotpack.export import model_lines


def lowered_line() -> model_lines.ModelLine | None:
    """The line of the operator that is being lowered; None outside of a lowering, or where it is not known."""
    node = getattr(V.graph, "current_node", None)
    trace = getattr(node, "meta", {}).get("stack_trace")
    return model_lines.of_trace(trace) if trace else None
