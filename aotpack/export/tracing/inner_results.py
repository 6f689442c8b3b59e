"""Results of graphs inside that are, or lie in the memory of, their operands or each other.

Operators over functions must return memory of their own. Graphs that AOTAutograd makes of a forward and its backward
return operands for the backward to read.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.regions import inner_graph, region_names
from aotpack.export.torch_compat.tensors import storage_id


def return_own_memory(graph_module: torch.fx.GraphModule) -> None:
    """Changes the graphs inside, at any depth, so that they return copies of such results."""
    for name in region_names(graph_module):
        inner = inner_graph(graph_module, name)
        return_own_memory(inner)
        _copy_shared(inner)


def _copy_shared(region: torch.fx.GraphModule) -> None:
    output = region.graph.output_node()
    returned: Any = output.args[0]
    if not isinstance(returned, (list, tuple)):
        return
    taken = {key for node in region.graph.find_nodes(op="placeholder") if (key := memory(node)) is not None}
    results = list(returned)
    for i, result in enumerate(results):
        key = memory(result)
        if key is None:
            continue
        if key in taken:
            with region.graph.inserting_before(output):
                results[i] = region.graph.call_function(torch.ops.aten.clone.default, (result,))
            results[i].meta.update(result.meta)
            with result.meta["val"].fake_mode:
                results[i].meta["val"] = torch.ops.aten.clone.default(result.meta["val"])
        taken.add(key)
    output.args = (tuple(results) if isinstance(returned, tuple) else results,)
    region.recompile()


def memory(node: Any) -> int | None:
    """The memory of a node's tensor; None for what is no tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return storage_id(value) if isinstance(value, torch.Tensor) else None
