"""What a piece of a graph computes, apart from the weights and values that it reads: equal for repeated blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy
import torch
import torch.fx

from aotpack.export.ir.program import Program, identity
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.weights.identity import frozen


@dataclass(frozen=True)
class Structure:
    """A piece of a graph. Two of equal `key` are one function of their inputs and constants, which correspond in order.

    Attributes:
        key: operators, other arguments, and the dtype, sizes, strides and sharing of all tensors.
        inputs: what it reads of the rest of the program, in the order of first use.
        constants: the attributes that it reads, likewise.
    """

    key: Hashable
    inputs: tuple[torch.fx.Node, ...]
    constants: tuple[str, ...]


def structure_of(
    program: Program, nodes: Sequence[torch.fx.Node], results: Sequence[torch.fx.Node | None] = ()
) -> Structure:
    """The structure of these nodes of a program, in order; `results` are those of them that others read."""
    return _Reader(program, nodes).read(results)


class _Reader:
    def __init__(self, program: Program, nodes: Sequence[torch.fx.Node]) -> None:
        self._program = program
        self._nodes = nodes
        self._own = {node: number for number, node in enumerate(nodes)}
        self._inputs: dict[torch.fx.Node, int] = {}
        self._constants: dict[str, int] = {}
        self._tensors: dict[Hashable, int] = {}
        self._memories: dict[Hashable, int] = {}

    def read(self, results: Sequence[torch.fx.Node | None]) -> Structure:
        calls = tuple(
            (node.op, node.target, self._argument(node.args), self._argument(node.kwargs), look(node.meta.get("val")))
            for node in self._nodes
        )
        returned = tuple(self._argument(result) for result in results)
        return Structure((calls, returned), tuple(self._inputs), tuple(self._constants))

    def _argument(self, value: Any) -> Hashable:
        if isinstance(value, torch.fx.Node):
            return self._node(value)
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, tuple(map(self._argument, value)))
        if isinstance(value, dict):
            return ("dict", tuple((key, self._argument(item)) for key, item in value.items()))
        if isinstance(value, slice):
            return ("slice", tuple(map(self._argument, (value.start, value.stop, value.step))))
        return frozen(value)

    def _node(self, node: torch.fx.Node) -> Hashable:
        if node in self._own:
            return ("own", self._own[node])
        if node.op != "get_attr":
            known = node in self._inputs
            number = self._inputs.setdefault(node, len(self._inputs))
            return ("input", number) if known else ("input", number, look(node.meta.get("val")))
        attribute = str(node.target)
        known = attribute in self._constants
        number = self._constants.setdefault(attribute, len(self._constants))
        return ("constant", number) if known else ("constant", number, self._constant(node, attribute))

    def _constant(self, node: torch.fx.Node, attribute: str) -> Hashable:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            # A graph inside.
            return frozen(node)
        info = self._program.constant_info(attribute)
        tensor = self._program.original(attribute)
        # Which of the constants are one tensor, or views of one memory.
        same = self._tensors.setdefault(identity(tensor), len(self._tensors))
        memory = self._memories.setdefault(storage_id(tensor), len(self._memories))
        derived = None if info.recipe is None else frozen(info)
        return (same, memory, info.role, info.mutated, derived, isinstance(tensor, torch.nn.Parameter), look(value))


def look(value: Any) -> Hashable:
    """Dtype, sizes and layout of a tensor; a number as an expression."""
    if isinstance(value, torch.Tensor):
        layout = (*map(_stride, value.stride()), _size(value.storage_offset()))
        return (type(value).__name__, value.dtype, str(value.device), tuple(map(_size, value.shape)), layout)
    if isinstance(value, (tuple, list)):
        return tuple(map(look, value))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return ("number", expression(value))
    return frozen(value)


def _size(size: Any) -> Hashable:
    return size if type(size) is int else expression(size)


def _stride(stride: Any) -> Hashable:
    return stride if type(stride) is int else _unpadded(expression(stride))


@cache
def _unpadded(stride: sympy.Expr) -> sympy.Expr:
    """For sizes that may be 0, torch may write strides with max(1, size): the same wherever there is an element."""
    padded = [part for part in sympy.preorder_traversal(stride) if type(part).__name__ == "Max" and 1 in part.args]
    return stride.xreplace({part: part.func(*(arg for arg in part.args if arg != 1)) for part in padded})
