"""Derivatives of functions that torch.cond, map and scan take, which compute these functions once more.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.cond.{create_bw_fn, materialize_as_graph}   replaced while a model is captured
  torch._higher_order_ops.map.materialize_as_graph   replaced while a model is captured
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from aotpack.errors import CaptureError

__all__ = ["dense_gradients", "drawing_nothing", "refuse_random_numbers"]


def dense_gradients(original: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a function of `torch.cond`: its gradients are contiguous, as those of the other function."""

    def made(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        backward = original(*args, **kwargs)

        def dense(*values: Any) -> list[Any]:
            return [g.contiguous() if isinstance(g, torch.Tensor) else g for g in backward(*values)]

        return dense

    return made


def drawing_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that traces functions and their derivatives, which refuses a derivative that draws random numbers."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        graph = original(*args, **kwargs)
        # Gradients are enabled for derivatives alone.
        if kwargs.get("force_enable_grad"):
            refuse_random_numbers(graph)
        return graph

    return traced


def refuse_random_numbers(derivative: torch.fx.GraphModule) -> None:
    """Refuses a derivative whose results depend on random numbers: they are not those of the forward.

    Raises:
        CaptureError: naming the operator.
    """
    needed: set[torch.fx.Node] = set()
    for node in reversed(derivative.graph.nodes):
        if node.op != "output" and node not in needed:
            continue
        needed.update(node.all_input_nodes)
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CaptureError(
                f"a function of torch.cond, map or scan draws random numbers by {node.target}, and its gradient needs "
                "the same ones",
                hint="draw the numbers before, and pass them to the function (for dropout, a mask of random bits)",
            )
        inner = getattr(derivative, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(inner, torch.fx.GraphModule):
            refuse_random_numbers(inner)
