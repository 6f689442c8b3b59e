"""Nodes of graphs, and modules over graphs.

Private interfaces touched (torch 2.11 to 2.13):
  torch.fx.Node._erased
  torch.fx.Graph.{_graph_namespace, _insert, _find_nodes_lookup_table, _len}   what `Graph.create_node` does
  torch.fx._lazy_graph_module._LazyGraphModule   its constructor is GraphModule's
"""

from __future__ import annotations

import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_arg


def is_erased(node: torch.fx.Node) -> bool:
    """Whether a node was removed from its graph."""
    return node._erased


def copy_of(source: torch.fx.Graph) -> torch.fx.Graph:
    """A graph with the same nodes: `Graph.graph_copy`, which spends half of its time on checks of the arguments that
    each node of `source` has passed already.
    """
    graph = torch.fx.Graph()
    names, table = graph._graph_namespace, graph._find_nodes_lookup_table
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in source.nodes:
        args, kwargs = map_arg(node.args, made.__getitem__), map_arg(node.kwargs, made.__getitem__)
        if node.op == "output":
            # It has no `meta` to keep.
            graph.output(args[0])
            break
        name = names.create_name(node.name, None)
        copy = torch.fx.Node(graph, name, node.op, node.target, args, kwargs, node.type)
        copy.meta.update(node.meta)
        names.associate_name_with_obj(name, copy)
        graph._insert(copy)
        table.insert(copy)
        graph._len += 1
        made[node] = copy
    return graph


def module_over(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A graph module over `graph` and the tensors of `root`.

    Its Python code is generated when the module is called or its code is read: a pass does neither, and generating code
    would take most of the time of a pass that changes nothing.
    """
    return _LazyGraphModule(root, graph)
