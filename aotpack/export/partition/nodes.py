"""What nodes are to a partitioning: what computes, what each stage can have for itself, what no cut may separate."""

from __future__ import annotations

from collections.abc import Iterator

import sympy
import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.values import is_view, sizes_of, symbols_of
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat.operators import schema_or_none, written_arguments
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
        self._written = _written_nodes(program)
        placeholders = program.graph.find_nodes(op="placeholder")
        # What each stage can ask an input of the entry for.
        self._entry_sizes = {size for node in placeholders for size in sizes_of(node.meta.get("val"))}
        self._free: set[torch.fx.Node] = set()
        for node in program.graph.nodes:
            if self._can_be_free(node):
                self._free.add(node)
        self._opaque = self._opaque_symbols()

    def is_free(self, node: torch.fx.Node) -> bool:
        """Whether every stage can have the node for itself."""
        return node in self._free

    def is_number(self, node: torch.fx.Node) -> bool:
        """Whether a node is a free number that is computed."""
        return node.op == "call_function" and node in self._free

    def needs_tensor(self, node: torch.fx.Node) -> bool:
        """Whether a size can be told by its tensor only, not by an input of the entry."""
        return node.target in _SIZES and shape_env.expression(node.meta["val"]) not in self._entry_sizes

    def computing(self) -> Iterator[torch.fx.Node]:
        """The nodes that a partitioning assigns to stages, in order."""
        for node in self._program.graph.nodes:
            if node.op != "output" and node not in self._free:
                yield node

    def inseparable(self) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
        """Pairs of computing nodes that belong to one stage."""
        yield from self.inseparable_values()
        for first, *others in self.users_of_written():
            yield from ((first, other) for other in others)

    def inseparable_values(self) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
        """Those that are because of the values between them: parts of a result that is not a tensor; numbers out of the
        data, and tensors with sizes that are such numbers, with their readers; views by address.
        """
        for node in self.computing():
            value = node.meta.get("val")
            if isinstance(value, (list, tuple, *_NUMBERS)) or self._opaque.intersection(symbols_of(value)):
                yield from ((node, user) for user in self._users(node))
            if node.target is _aten.as_strided.default:
                yield from ((node, base) for base in self._bases(node))

    def users_of_written(self) -> Iterator[list[torch.fx.Node]]:
        """For each memory to which a call writes, all that reads or writes it, by whatever view."""
        for memory in self._written:
            yield [*self._users_of_memory(memory)] or [memory]

    def _opaque_symbols(self) -> set[sympy.Basic]:
        """The symbols out of the data that are not the size of the tensor that they came with: a stage that is handed
        tensors could not tell them.
        """
        env = shape_env.graph_environment(self._program.graph)
        seen: set[sympy.Basic] = set()
        opaque: set[sympy.Basic] = set()
        for node in self._program.graph.nodes:
            value = node.meta.get("val")
            new = [symbol for symbol in symbols_of(value) if symbol not in seen]
            if new and env is not None:
                seen.update(new)
                plain = set(sizes_of(value)) if isinstance(value, torch.Tensor) else set()
                opaque.update(s for s in new if not shape_env.is_input(env, s) and s not in plain)
        return opaque

    def _bases(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        """What a view shares memory with."""
        for argument in node.all_input_nodes:
            if argument not in self._free:
                yield argument
                if is_view(argument):
                    yield from self._bases(argument)

    def _can_be_free(self, node: torch.fx.Node) -> bool:
        if node.op in ("placeholder", "get_attr"):
            return True
        if node.op != "call_function" or not isinstance(node.meta.get("val"), _NUMBERS):
            return False
        if node.target in _SIZES:
            return True
        return all(argument in self._free and argument not in self._written for argument in node.all_input_nodes)

    def _users(self, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        return (user for user in node.users if user.op != "output" and user not in self._free)

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


def _written_nodes(program: Program) -> dict[torch.fx.Node, None]:
    """State, and what operators write to."""
    found: dict[torch.fx.Node, None] = {}
    for node in program.graph.nodes:
        is_constant = node.op == "get_attr" and isinstance(node.meta.get("val"), torch.Tensor)
        if is_constant and program.constant_info(str(node.target)).mutated:
            found[node] = None
        schema = schema_or_none(node.target)
        written = [] if schema is None else written_arguments(schema, node.args, node.kwargs)
        found.update(dict.fromkeys(value for value in written if isinstance(value, torch.fx.Node)))
    return found


def _share_memory(program: Program, one: torch.fx.Node, other: torch.fx.Node) -> bool:
    if one.target == other.target:
        return True
    tensors = [node.meta.get("val") for node in (one, other)]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return False
    first, second = (storage_id(program.original(str(node.target))) for node in (one, other))
    return first == second
