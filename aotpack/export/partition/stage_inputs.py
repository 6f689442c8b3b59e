"""What a stage reads: tensors that its nodes read, and what tells it the sizes that occur in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from aotpack.export.ir.values import sizes_of, symbols_of
from aotpack.export.partition.nodes import NodeRoles
from aotpack.export.symbolic_shapes.shape_env import expression

_SIZE = torch.ops.aten.sym_size.int


class StageInputs:
    """The inputs of a stage.

    Attributes:
        nodes: inputs of the entry in their order, then results of other stages.
    """

    nodes: tuple[torch.fx.Node, ...]

    def __init__(self, roles: NodeRoles, nodes: Sequence[torch.fx.Node], results: Sequence[torch.fx.Node] = ()) -> None:
        """`nodes`: the computing nodes of the stage, in order. `results`: what it returns of what the entry does."""
        self._roles = roles
        self._own = dict.fromkeys(nodes)
        self._graph = (nodes or results)[0].graph
        position = {node: index for index, node in enumerate(self._graph.nodes)}
        self._entry = list(self._graph.find_nodes(op="placeholder"))
        self._reads: dict[torch.fx.Node, None] = {}
        self._numbers: dict[torch.fx.Node, None] = {}
        self._sources: dict[torch.fx.Node, tuple[torch.fx.Node, int | None]] = {}
        sizes: dict[torch.fx.Node, None] = {}
        for node in nodes:
            for argument in node.all_input_nodes:
                self._read(argument, sizes)
        for node in results:
            self._read(node, sizes)
        for node in sizes:
            self._find_size(node)
        self._bind_symbols()
        self.nodes = tuple(sorted(self._reads, key=lambda node: (node.op != "placeholder", position[node])))

    def size_source(self, node: torch.fx.Node) -> tuple[torch.fx.Node, int | None] | None:
        """What a size of a tensor of another stage is read of: a tensor and an axis, or a number among the inputs of
        the entry. None: the stage has the tensor.
        """
        return self._sources.get(node)

    def _read(self, node: torch.fx.Node, sizes: dict[torch.fx.Node, None]) -> None:
        """Notes what it takes to have a node in the stage."""
        if node in self._own or node.op == "get_attr":
            return
        if not self._roles.is_number(node):
            self._reads[node] = None
            return
        self._numbers[node] = None
        if node.target is _SIZE:
            sizes[node] = None
        else:
            for argument in node.all_input_nodes:
                self._read(argument, sizes)

    def _find_size(self, node: torch.fx.Node) -> None:
        tensor: Any = node.args[0]
        if tensor in self._own or tensor in self._reads or tensor.op == "get_attr":
            return
        wanted = expression(node.meta["val"])
        for other in (*self._reads, *self._entry):
            for axis, size in _axes(other):
                if expression(size) == wanted:
                    self._sources[node] = (other, axis)
                    self._reads[other] = None
                    return
        self._reads[tensor] = None

    def _bind_symbols(self) -> None:
        """Adds inputs until each symbol in a size of the stage is the size of one, or is one: inputs of the entry, or
        for symbols out of the data the tensor that they came with.
        """
        bound = {size for node in self._reads for size in sizes_of(node.meta["val"])}
        wanted: dict[sympy.Basic, None] = {}
        for node in (*self._reads, *self._own, *self._numbers):
            wanted.update(dict.fromkeys(symbols_of(node.meta.get("val"))))
        for symbol in wanted:
            if symbol in bound:
                continue
            first = next((node for node in self._graph.nodes if symbol in sizes_of(node.meta.get("val"))), None)
            if first is not None and first not in self._own and not self._roles.is_number(first):
                self._reads[first] = None
                bound.update(sizes_of(first.meta["val"]))


def _axes(node: torch.fx.Node) -> Iterator[tuple[int | None, Any]]:
    """(axis, size) of a tensor; (None, itself) of a number."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        yield from enumerate(value.shape)
    elif isinstance(value, torch.SymInt):
        yield None, value
