"""Simplifies complex numbers after decomposition: parts that are joined and split again are used directly.

Decompositions take complex tensors apart (`aten.view_as_real`, `aten.select`), compute with real ones and join the
results (`aten.complex`), each for itself. Here, on the whole graph, joining and taking apart cancel out. What stays
joined, because an output or a kernel wants it so, is written by one loop with the parts side by side.

Interfaces touched (torch 2.11 to 2.13):
  torch._inductor.config.post_grad_custom_pre_pass
  torch.fx.experimental.symbolic_shapes.statically_known_true
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpack.export.ops.complex import complex_store

aten = torch.ops.aten


def simplify_complex(graph: torch.fx.Graph) -> None:
    """Runs on the graph that TorchInductor is about to lower."""
    _cancel(graph)
    for node in graph.find_nodes(op="call_function", target=aten.complex.default):
        _interleave(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        if node.args[0].meta["val"].is_complex():
            _store(graph, node)
    graph.eliminate_dead_code()
    graph.lint()


def _cancel(graph: torch.fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.view_as_real.default):
        source = node.args[0]
        if source.target is not aten.complex.default:
            continue
        rank = node.meta["val"].dim()
        for user in list(node.users):
            if user.target is aten.select.int and user.args[1] % rank == rank - 1:
                user.replace_all_uses_with(source.args[user.args[2] % 2])
    graph.eliminate_dead_code()


def _interleave(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Both parts, side by side in one real tensor, seen as complex; dims lie as the graph says that they do."""
    order = _order(node.meta["val"])
    back = [order.index(d) for d in range(len(order))]
    moved = order != sorted(order)
    with graph.inserting_before(node):
        parts = list(node.args)
        if moved:
            parts = [_call(graph, aten.permute.default, (part, order)) for part in parts]
        parts = [_call(graph, aten.unsqueeze.default, (part, -1)) for part in parts]
        both = _call(graph, aten.cat.default, (parts, -1))
        for user in list(node.users):
            if user.target is aten.view_as_real.default:
                real = _call(graph, aten.permute.default, (both, [*back, len(back)])) if moved else both
                user.replace_all_uses_with(real)
                graph.erase_node(user)
        if node.users:
            result = _call(graph, aten.view_as_complex.default, (both,))
            node.replace_all_uses_with(_call(graph, aten.permute.default, (result, back)) if moved else result)
    graph.erase_node(node)


def _order(value: torch.Tensor) -> list[int]:
    """The dims from outermost to innermost as far as that is known for all sizes, else as they are numbered."""
    order = list(range(value.dim()))
    for i in range(1, len(order)):
        # By insertion, so that dims of equal strides stay in their order.
        while i > 0 and statically_known_true(value.stride(order[i - 1]) < value.stride(order[i])):
            order[i - 1], order[i] = order[i], order[i - 1]
            i -= 1
    return order


def _store(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Writes to state, which come last, by an aotpack operator."""
    state = node.args[0]
    assert isinstance(state, torch.fx.Node)
    with graph.inserting_before(node):
        graph.call_function(complex_store, node.args[:2])
    node.replace_all_uses_with(state)
    graph.erase_node(node)


def _call(graph: torch.fx.Graph, target: Any, args: tuple[Any, ...]) -> torch.fx.Node:
    node = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda n: n.meta["val"])
    with _fake_mode(values):
        node.meta["val"] = target(*values)
    return node


def _fake_mode(values: Sequence[Any]) -> Any:
    tensors = values[0] if isinstance(values[0], (list, tuple)) else values
    return tensors[0].fake_mode
