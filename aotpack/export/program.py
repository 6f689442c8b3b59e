"""Program: a captured model on its way through the passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx

from aotpack.spec import Signature


@dataclass(frozen=True)
class ConstantInfo:
    """Where a constant of a program comes from: its role in the manifest and the names in the source model."""

    role: str
    sources: tuple[str, ...]
    mutated: bool = False


@dataclass(frozen=True)
class Reference:
    """The example call and what eager PyTorch answered: flat tensors, inputs dense and detached."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Program:
    """One entry of an archive before it is lowered. Immutable to its users: a pass returns a new one.

    Attributes:
        name: the model's name.
        graph_module: a flat graph. Placeholders are the tensors of `signature.inputs`, in order; constants are
            `get_attr` nodes; the output is a flat tuple of the tensors of `signature.outputs`. Every node carries a
            fake tensor in `meta["val"]`.
        signature: how the entry is called.
        constants: by attribute name of `graph_module`. An attribute without an entry is a constant of its own name.
        reference: for goldens; None where the model draws random numbers.
        notes: what each pass did, in order.
    """

    name: str
    graph_module: torch.fx.GraphModule
    signature: Signature
    constants: Mapping[str, ConstantInfo] = field(default_factory=dict)
    reference: Reference | None = None
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    def editable(self) -> torch.fx.GraphModule:
        """A graph module to change in a pass: a graph of its own over the same tensors."""
        memo: dict[Any, Any] = {}
        graph = torch.fx.Graph()
        output = graph.graph_copy(self.graph, memo)
        graph.output(output)
        # graph_copy shares `meta` dicts by copy; the output node has none of its own to keep.
        return torch.fx.GraphModule(self.graph_module, graph)

    def with_graph(
        self, graph_module: torch.fx.GraphModule, constants: Mapping[str, ConstantInfo] | None = None
    ) -> Program:
        """The same program over another graph, with constants added."""
        merged = {**self.constants, **(constants or {})}
        return replace(self, graph_module=graph_module, constants=merged)

    def with_note(self, name: str, note: str) -> Program:
        return replace(self, notes=(*self.notes, (name, note)))

    def constant_info(self, attribute: str) -> ConstantInfo:
        """What is known of a constant; an attribute of the source model describes itself."""
        known = self.constants.get(attribute)
        if known is not None:
            return known
        value = get_attribute(self.graph_module, attribute)
        role = "parameter" if isinstance(value, torch.nn.Parameter) else "buffer"
        return ConstantInfo(role, (attribute,))


def get_attribute(module: torch.nn.Module, path: str) -> torch.Tensor:
    """The tensor at a dotted path."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{path} is a {type(value).__name__}, expected a tensor")
    return value
