"""Sizes that scan and map need as arguments.

TorchInductor makes loops of them, whose results it allocates before the first iteration. It looks for the sizes of
these among the numbers that the operator gets; a trace passes those alone that the function reads.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.regions import CALLS, add_fixed_operand, given_regions, inner_graph, operands_of, region_names
from aotpack.export.symbolic_shapes.dims import expression
from aotpack.export.torch_compat import pytree

_LOOPS = (torch.ops.higher_order.scan, torch.ops.higher_order.map_impl)


def pass_sizes_of_results(graph_module: torch.fx.GraphModule) -> None:
    """Changes the graph, and the graphs inside, so that their scans and maps get the sizes of their results."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target in _LOOPS:
            _pass_sizes(graph_module, node)
    for name in region_names(graph_module):
        pass_sizes_of_results(inner_graph(graph_module, name))
    graph_module.recompile()


def _pass_sizes(graph_module: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    operands = [operand for operand in operands_of(node) if isinstance(operand, torch.fx.Node)]
    known = {expression(n.meta["val"]) for n in operands if isinstance(n.meta["val"], torch.SymInt)}
    # The length of the loop is bound by TorchInductor.
    sequences: Any = node.args[CALLS[node.target].operands[-2]]
    known.add(expression(sequences[0].meta["val"].shape[0]))
    values = [value for value in pytree.tree_leaves(node.meta["val"]) if isinstance(value, torch.Tensor)]
    needed = {symbol for value in values for size in value.shape for symbol in expression(size).free_symbols}
    body = [inner_graph(graph_module, name) for name in given_regions(node)]
    for symbol in sorted(needed - known, key=str):
        add_fixed_operand(node, _size(graph_module, node, operands, symbol), body)


def _size(
    graph_module: torch.fx.GraphModule, before: torch.fx.Node, operands: list[torch.fx.Node], symbol: Any
) -> torch.fx.Node:
    """A node for the value of a symbol: a number or a size of one of the operands, or of any value before.

    An operand may have sizes that only depend on the symbol, such as the number of frames of a signal.
    """
    earlier = list(itertools.takewhile(lambda node: node is not before, graph_module.graph.nodes))
    node: torch.fx.Node
    for node in [*operands, *earlier]:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and expression(value) == symbol:
            return node
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if expression(size) == symbol:
                with graph_module.graph.inserting_before(before):
                    found = graph_module.graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                found.meta["val"] = size
                return found
    raise KeyError(symbol)
