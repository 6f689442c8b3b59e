"""Moves a program to a CUDA device that does not exist: what its graph says of devices, and no data."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from aotpack.export.ir.program import Program, get_attribute
from aotpack.export.ir.rewriter import fake_mode, is_dense
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.export.torch_compat.pytree import tree_map_only
from aotpack.export.torch_compat.triton.driver import DEVICE


def on_device(program: Program) -> tuple[torch.fx.GraphModule, list[Any], list[str]]:
    """The graph over fake tensors on `cuda:0`, with constants as placeholders after the inputs.

    Code generation neither reads nor compares the values of inputs, so that constants of equal shapes stay apart.
    Numbers of the caller, tensors of rank 0, stay in the memory of the host. `fake_gpu` is active.

    Returns:
        The graph, the values of its placeholders, and the attributes that are the constants.
    """
    module = module_over(program.graph_module, program.editable().graph)
    graph = module.graph
    placeholders = graph.find_nodes(op="placeholder")
    numbers = {
        node for node, spec in zip(placeholders, program.signature.inputs, strict=True) if spec.number is not None
    }
    mode = fake_mode(program.graph_module)
    with torch.no_grad(), mode:
        for node in graph.nodes:
            node.args = _moved(node.args)
            node.kwargs = _moved(node.kwargs)
            if _creates(node):
                node.update_kwarg("device", DEVICE)
            if "val" in node.meta and node not in numbers:
                node.meta["val"] = tree_map_only(torch.Tensor, _on_device, node.meta["val"])
        attributes = program.constant_names()
        after = placeholders[-1] if placeholders else None
        for attribute in attributes:
            nodes = graph.find_nodes(op="get_attr", target=attribute)
            with graph.inserting_after(after) if after else graph.inserting_before(next(iter(graph.nodes))):
                after = graph.placeholder(f"constant_{nodes[0].name}")
            after.meta["val"] = _constant(get_attribute(program.graph_module, attribute))
            for node in nodes:
                node.replace_all_uses_with(after)
                graph.erase_node(node)
    module.recompile()
    values = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    return module, values, attributes


def _moved(arguments: Any) -> Any:
    return map_aggregate(arguments, lambda a: DEVICE if isinstance(a, torch.device) else a)


def _creates(node: torch.fx.Node) -> bool:
    """Whether it makes a tensor of none, on the device by default, which is the host."""
    if not isinstance(node.target, OpOverload) or node.kwargs.get("device") is not None:
        return False
    takes_device = any(argument.name == "device" for argument in operator_schema(node.target).arguments)
    return takes_device and not any(isinstance(n.meta.get("val"), torch.Tensor) for n in node.all_input_nodes)


def _on_device(value: torch.Tensor) -> torch.Tensor:
    # With its strides, which `to` does not keep where elements overlap.
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)


def _constant(value: torch.Tensor) -> torch.Tensor:
    """A constant as the archive holds it: dense."""
    if is_dense(value):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
    return torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
