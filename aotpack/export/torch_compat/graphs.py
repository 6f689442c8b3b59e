"""Nodes of graphs, and modules over graphs.

Private interfaces touched (torch 2.11 to 2.13):
  torch.fx.Node._erased
  torch.fx._lazy_graph_module._LazyGraphModule   its constructor is GraphModule's
"""

from __future__ import annotations

import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule


def is_erased(node: torch.fx.Node) -> bool:
    """Whether a node was removed from its graph."""
    return node._erased


def module_over(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph module over `graph` and the tensors of `root`.

    Its Python code is generated when the module is called or its code is read: a pass does neither, and generating code
    would take most of the time of a pass that changes nothing.
    """
    return _LazyGraphModule(root, graph)
