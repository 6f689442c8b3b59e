"""Calls of `invoke_subgraph`, which Dynamo makes of functions under `torch.compiler.nested_compile_region`.

Their graphs take the place of the calls, and their nodes carry the number of the call: what is repeated, and compiled
once, is decided over the whole program (aotpack/export/blocks).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from aotpack.export.ir.marks import mark
from aotpack.export.ir.regions import hold, inner_graph, is_region
from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.torch_compat.dispatch import enable_python_dispatcher
from aotpack.export.torch_compat.nested_regions import INVOKE_SUBGRAPH


def inline_nested_regions(module: torch.fx.GraphModule) -> None:
    """Changes the module so that it has no calls of `invoke_subgraph`."""
    calls = list(module.graph.find_nodes(op="call_function", target=INVOKE_SUBGRAPH))
    for number, call in enumerate(calls):
        region, name, *operands = call.args
        assert isinstance(region, torch.fx.Node)
        graph = inner_graph(module, str(region.target))
        inline_nested_regions(graph)
        results = _copied(module, graph, call, f"{name}@{number}", operands)
        for user in list(call.users):
            if user.target is operator.getitem:
                user.replace_all_uses_with(results[user.args[1]])
                module.graph.erase_node(user)
        module.graph.erase_node(call)
        if not region.users:
            module.graph.erase_node(region)
    if calls:
        module.recompile()


def _copied(
    module: torch.fx.GraphModule, graph: torch.fx.GraphModule, call: torch.fx.Node, label: str, operands: list[Any]
) -> Any:
    """The nodes of a graph inside in front of its call; its results."""
    copies: dict[torch.fx.Node, Any] = dict(zip(graph.graph.find_nodes(op="placeholder"), operands, strict=True))
    mode = fake_mode(module)
    with module.graph.inserting_before(call):
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copy = copies[node] = module.graph.node_copy(node, copies.__getitem__)
            if node.op == "get_attr":
                name, value = f"{label.replace('@', '_')}_{node.target}", getattr(graph, str(node.target))
                copy.target = name
                if is_region(graph, node):
                    module.add_module(name, value)
                else:
                    hold(module, name, value)
                continue
            mark(copy, label)
            if "stack_trace" not in copy.meta and "stack_trace" in call.meta:
                copy.meta["stack_trace"] = call.meta["stack_trace"]
            # The graph was traced with the tensors of its first call.
            with mode, torch.no_grad(), enable_python_dispatcher():
                args, kwargs = map_arg((copy.args, copy.kwargs), lambda n: n.meta["val"])
                if callable(copy.target):
                    copy.meta["val"] = copy.target(*args, **kwargs)
    returned: Any = graph.graph.output_node().args[0]
    return map_arg(returned, copies.__getitem__)
