"""Memory of operands and results of graphs inside.

Operators over functions must return memory of their own, and take each tensor once. Graphs that AOTAutograd makes of a
forward and its backward return operands for the backward to read; passes remove copies, and fold results to constants.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.regions import CALLS, calls_graphs, inner_graph, region_names
from aotpack.export.torch_compat.tensors import storage_id


def separate_memory(graph_module: torch.fx.GraphModule) -> None:
    """Changes the graph, and those inside, at any depth: copies are taken of operands that lie in the memory of another
    one, and returned of results that lie in that of an operand or another result.
    """
    for node in [node for node in graph_module.graph.nodes if calls_graphs(node)]:
        _copy_shared_operands(node)
    for name in region_names(graph_module):
        inner = inner_graph(graph_module, name)
        separate_memory(inner)
        _copy_shared_results(inner)
    graph_module.recompile()


def _copy_shared_operands(call: torch.fx.Node) -> None:
    taken: set[int] = set()
    args: list[Any] = list(call.args)
    for place in CALLS[call.target].operands:
        args[place] = _separate(args[place], taken, call)
    call.args = tuple(args)


def _copy_shared_results(region: torch.fx.GraphModule) -> None:
    output = region.graph.output_node()
    returned: Any = output.args[0]
    if not isinstance(returned, (list, tuple)):
        return
    taken = {key for node in region.graph.find_nodes(op="placeholder") if (key := memory(node)) is not None}
    output.args = (_separate(returned, taken, output),)


def _separate(values: Any, taken: set[int], before: torch.fx.Node) -> Any:
    """The list or tuple with copies, made in front of `before`, of what lies in memory of `taken`, which grows."""
    found = []
    for value in values:
        key = memory(value)
        found.append(_copy_of(value, before) if key in taken else value)
        if key is not None:
            taken.add(key)
    return found if isinstance(values, list) else tuple(found)


def _copy_of(node: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
    with node.graph.inserting_before(before):
        copy = node.graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta.update(node.meta)
    with node.meta["val"].fake_mode:
        copy.meta["val"] = torch.ops.aten.clone.default(node.meta["val"])
    return copy


def memory(node: Any) -> int | None:
    """The memory of a node's tensor; None for what is no tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return storage_id(value) if isinstance(value, torch.Tensor) else None
