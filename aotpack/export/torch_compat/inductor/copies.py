"""Copies of state stay copies.

TorchInductor removes a clone of a value that nothing else changes. It looks for memory that a graph writes to among the
inputs; here state is a constant of the graph, and a copy of it that is read after the write would show the new value.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.fx_passes.post_grad.remove_noop_ops
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from aotpack.export.torch_compat.patches import replaced

_COPIES = (torch.ops.aten.clone.default, torch.ops.aten.copy.default)


@contextlib.contextmanager
def copies_of_state_kept() -> Iterator[None]:
    """While active, clones of constants that the graph writes to are not removed."""
    from torch._inductor.fx_passes import post_grad

    original: Any = post_grad.remove_noop_ops

    def remove_noop_ops(graph: torch.fx.Graph) -> None:
        hidden = [node for node in graph.nodes if node.target in _COPIES and _is_of_state(node)]
        targets = [node.target for node in hidden]
        for node in hidden:
            node.target = _kept
        try:
            original(graph)
        finally:
            for node, target in zip(hidden, targets, strict=True):
                node.target = target

    with replaced(post_grad, "remove_noop_ops", remove_noop_ops):
        yield


def _kept(*_: Any, **__: Any) -> None:
    """Stands for a clone meanwhile."""


def _is_of_state(node: torch.fx.Node) -> bool:
    """Whether a clone is of a constant that is written to, or of a view of one."""
    source: Any = node.args[0 if node.target is torch.ops.aten.clone.default else 1]
    while isinstance(source, torch.fx.Node) and source.op == "call_function" and _is_view(source.target):
        source = source.args[0]
    if not isinstance(source, torch.fx.Node) or source.op != "get_attr":
        return False
    same = [other for other in node.graph.find_nodes(op="get_attr") if other.target == source.target]
    return any(_writes_to(user, other) for other in same for user in other.users)


def _is_view(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and any(r.alias_info is not None for r in target._schema.returns)


def _writes_to(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    if not isinstance(user.target, torch._ops.OpOverload) or not user.target._schema.is_mutable:
        return False
    return bool(user.args) and user.args[0] is node
