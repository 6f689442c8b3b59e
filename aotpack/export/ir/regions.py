"""Graphs inside a graph: the branches of torch.cond, the condition and body of a loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch.fx


def is_region(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Whether a node stands for a graph of the graph module, which a call of an operator over functions gets."""
    return node.op == "get_attr" and isinstance(getattr(graph_module, str(node.target), None), torch.fx.GraphModule)


def constants(graph_module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """The nodes that stand for tensors of the graph module."""
    for node in graph_module.graph.find_nodes(op="get_attr"):
        if not is_region(graph_module, node):
            yield node
