"""What nodes are to a partitioning: what computes, what each stage can have for itself, what no cut may separate."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.export.torch_compat.tensors import storage_id

_aten = torch.ops.aten
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
_SIZES = (_aten.sym_size.int, _aten.sym_stride.int, _aten.sym_numel.default)


class NodeRoles:
    """The roles of the nodes of a program.

    `is_free`: inputs, constants, and numbers that are computed from them and from sizes. A stage that reads a free node
    gets a copy of it. All other nodes compute, each in one stage.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._env = shape_env.graph_environment(program.graph)
        self._free: set[torch.fx.Node] = set()
        for node in program.graph.nodes:
            if self._can_be_free(node):
                self._free.add(node)

    def is_free(self, node: torch.fx.Node) -> bool:
        """Whether every stage can have the node for itself."""
        return node in self._free

    def is_number(self, node: torch.fx.Node) -> bool:
        """Whether a node is a free number that is computed."""
        return node.op == "call_function" and node in self._free

    def computing(self) -> Iterator[torch.fx.Node]:
        """The nodes that a partitioning assigns to stages, in order."""
        for node in self._program.graph.nodes:
            if node.op != "output" and node not in self._free:
                yield node

    def inseparable(self) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
        """Pairs of computing nodes that belong to one stage.

        Parts of a result that is no tensor; all that reads memory to which a call writes, by whatever view; values
        whose sizes come out of the data, and numbers out of the data, with their readers; views by address.
        """
        for node in self.computing():
            value = node.meta.get("val")
            if isinstance(value, (list, tuple)) or self.is_data_dependent(node):
                yield from ((node, user) for user in self._users(node))
            if node.target is _aten.as_strided.default:
                yield from ((node, argument) for argument in node.all_input_nodes if argument not in self._free)
        for memory in self._written():
            first, *others = [*self._users_of_memory(memory)] or [memory]
            yield from ((first, other) for other in others)

    def is_data_dependent(self, node: torch.fx.Node) -> bool:
        """Whether a value is a number, or has a size, that is known only when the node has run."""
        value = node.meta.get("val")
        if isinstance(value, _NUMBERS):
            return node not in self._free
        return any(self._unknown(size) for tensor in _tensors(value) for size in (*tensor.shape, *tensor.stride()))

    def _unknown(self, size: Any) -> bool:
        if not isinstance(size, torch.SymInt) or self._env is None:
            return False
        return any(not shape_env.is_input(self._env, s) for s in shape_env.expression(size).free_symbols)

    def _can_be_free(self, node: torch.fx.Node) -> bool:
        if node.op in ("placeholder", "get_attr"):
            return True
        if node.op != "call_function" or not isinstance(node.meta.get("val"), _NUMBERS):
            return False
        if node.target in _SIZES:
            return not self._unknown(node.meta["val"])
        return all(argument in self._free and not self._is_state(argument) for argument in node.all_input_nodes)

    def _is_state(self, node: torch.fx.Node) -> bool:
        if node.op != "get_attr" or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        return self._program.constant_info(str(node.target)).mutated

    def _users(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        return (user for user in node.users if user.op != "output" and user not in self._free)

    def _written(self) -> Iterator[torch.fx.Node]:
        """State, and what operators write to."""
        seen = {node for node in self._program.graph.find_nodes(op="get_attr") if self._is_state(node)}
        yield from seen
        for node in self._program.graph.nodes:
            for argument in _written_arguments(node):
                if argument not in seen:
                    seen.add(argument)
                    yield argument

    def _users_of_memory(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        """A value, its views, and what reads any of them; computing nodes only."""
        same = [
            other
            for other in self._program.graph.nodes
            if other.op == node.op == "get_attr" and _share_memory(self._program, other, node)
        ]
        seen = {node, *same}
        pending = list(seen)
        while pending:
            value = pending.pop()
            if value not in self._free:
                yield value
            for user in self._users(value):
                if user in seen:
                    continue
                seen.add(user)
                if is_view(user):
                    pending.append(user)
                else:
                    yield user


def is_view(node: torch.fx.Node) -> bool:
    """Whether a node's result shares memory with an argument, and it computes nothing."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    schema = operator_schema(node.target)
    return not schema.is_mutable and any(result.alias_info is not None for result in schema.returns)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _written_arguments(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    if not isinstance(node.target, OpOverload) or not operator_schema(node.target).is_mutable:
        return
    for position, argument in enumerate(operator_schema(node.target).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.fx.Node):
                yield item


def _share_memory(program: Program, one: torch.fx.Node, other: torch.fx.Node) -> bool:
    if one.target == other.target:
        return True
    tensors = [node.meta.get("val") for node in (one, other)]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return False
    first, second = (storage_id(program.original(str(node.target))) for node in (one, other))
    return first == second
