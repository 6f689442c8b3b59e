"""Which nodes of a call with its gradients run in the forward, which in the backward, and what is kept in between.

What is worth keeping is AOTAutograd's choice (torch_compat/partitioner.py). What this file adds holds for any choice:
random operators run once, so that both halves see the same numbers; what exists in any case is not copied, such as
inputs under views; and what the forward overwrites is kept as it was.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx

from aotpack.errors import CaptureError
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import ancestors, as_node, is_impure
from aotpack.export.ir.values import is_view, sizes_of, symbols_of
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.export.torch_compat.partitioner import saved_values
from aotpack.export.tracing.interface import is_random_call

_aten = torch.ops.aten
# Parts of parts, and views by address.
_APART = (operator.getitem, _aten.as_strided.default)
_SIZES = (_aten.sym_size.int, _aten.sym_stride.int, _aten.sym_numel.default)


@dataclass(frozen=True)
class Halves:
    """A graph cut in two.

    Attributes:
        forward: the nodes that compute the results of the forward and what it keeps, in order.
        backward: the nodes that compute the gradients, in order. Some are also in `forward`: these run twice.
        kept: the values that the forward computes and the backward reads. Constants and inputs among them are
            overwritten by the forward.
        numbers: the sizes that the backward reads and could not read of a tensor that it has, likewise.
        inputs: the inputs of the forward that the backward reads, as they are.
        sizes: for a size in `backward` of a tensor that is only in the forward: a tensor of the backward and its axis,
            or a number of `numbers`.
    """

    forward: Sequence[torch.fx.Node]
    backward: Sequence[torch.fx.Node]
    kept: Sequence[torch.fx.Node]
    numbers: Sequence[torch.fx.Node]
    inputs: Sequence[torch.fx.Node]
    sizes: dict[torch.fx.Node, tuple[torch.fx.Node, int | None]]


def halves(program: Program, gradients: Sequence[torch.fx.Node], num_outputs: int, memory_budget: float) -> Halves:
    """Cuts the graph of a program. Nodes for sizes may be added to it.

    Args:
        program: its graph returns `num_outputs` results of the forward, then gradients.
        gradients: its nodes that are gradients of outputs, inputs of the backward.
        num_outputs: see above.
        memory_budget: see `saved_values`.

    Raises:
        CaptureError: the backward needs a size that comes out of the data.
    """
    return _Cut(program, gradients, num_outputs).run(memory_budget)


class _Cut:
    def __init__(self, program: Program, gradients: Sequence[torch.fx.Node], num_outputs: int) -> None:
        self._program = program
        self._graph = program.graph
        self._gradients = list(gradients)
        results: Any = self._graph.output_node().args[0]
        self._outputs, self._computed = list(results[:num_outputs]), list(results[num_outputs:])
        self._inputs = list(self._graph.find_nodes(op="placeholder"))
        self._writes = [node for node in self._graph.nodes if node.target is _aten.copy_.default]
        targets = [as_node(node.args[0]) for node in self._writes]
        self._written = {(node.op, node.target) for node in targets}
        after = self._after_gradients()
        self._effects = [node for node in self._graph.nodes if node.op == "call_function" and is_impure(node)]
        self._early = ancestors([*self._outputs, *(node for node in self._effects if node not in after)])
        self._late = [*self._computed, *(node for node in self._effects if node in after)]

    def run(self, memory_budget: float) -> Halves:
        kept = self._chosen(memory_budget)
        while True:
            backward, reads, sizes = self._backward(kept)
            twice = [node for node in backward if node in self._early and is_random_call(node)]
            if not twice:
                break
            for node in twice:
                kept |= self._parts(node)
        numbers = self._numbers(backward, reads, sizes)
        inputs = [node for node in reads if node.op == "placeholder"]
        owned = [node for node in inputs if self._is_written(node)]
        kept = {node for node in reads if node.op != "placeholder"}.difference(self._gradients) | set(owned)
        forward = self._early | ancestors([*kept, *numbers])
        order = [node for node in self._graph.nodes if node.op != "output"]
        return Halves(
            [node for node in order if node in forward],
            [node for node in order if node in backward],
            [node for node in order if node in kept],
            list(dict.fromkeys(numbers)),
            [node for node in inputs if node not in owned],
            sizes,
        )

    def _is_written(self, node: torch.fx.Node) -> bool:
        return (node.op, node.target) in self._written

    def _after_gradients(self) -> set[torch.fx.Node]:
        """The nodes that depend on a gradient of an output."""
        found = set(self._gradients)
        for node in self._graph.nodes:
            if any(argument in found for argument in node.all_input_nodes):
                found.add(node)
        return found

    # ---- what is kept ----

    def _chosen(self, memory_budget: float) -> set[torch.fx.Node]:
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        originals: dict[str, torch.fx.Node] = {}
        free: list[int] = []
        primals = 0
        for node in self._graph.nodes:
            is_tensor = node.op == "get_attr" and isinstance(node.meta.get("val"), torch.Tensor)
            if node in self._gradients:
                copy = graph.placeholder(f"tangents_{len(copies)}")
            elif is_tensor or node.op == "placeholder":
                copy = graph.placeholder(f"primals_{primals}")
                if is_tensor:
                    free.append(primals)
                primals += 1
            elif node.op == "output" or node in self._effects:
                continue
            else:
                copy = graph.node_copy(node, copies.__getitem__)
            copy.meta = dict(node.meta)
            copies[node] = copy
            originals[copy.name] = node
        values = [as_node(node.args[1]) for node in self._writes]
        results = [copies[node] for node in (*self._outputs, *values, *self._computed)]
        graph.output(tuple(results))
        # Placeholders of constants stand between the nodes.
        _placeholders_first(graph)
        joint = torch.fx.GraphModule(self._program.graph_module, graph)
        names = saved_values(joint, len(self._outputs) + len(values), free, memory_budget)
        kept: set[torch.fx.Node] = set()
        for name in names:
            kept |= self._parts(originals[name])
        return {node for node in map(_without_views, kept) if node.op == "call_function"}

    def _parts(self, node: torch.fx.Node) -> set[torch.fx.Node]:
        """The tensors that a node computes."""
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return {node}
        if isinstance(value, (tuple, list)):
            return {part for user in node.users for part in self._parts(user)}
        return set()

    def _backward(
        self, kept: set[torch.fx.Node]
    ) -> tuple[
        dict[torch.fx.Node, None],
        dict[torch.fx.Node, None],
        dict[torch.fx.Node, tuple[torch.fx.Node, int | None]],
    ]:
        """The nodes that compute, the tensors that they read, and the sizes that are still to be found."""
        computing: dict[torch.fx.Node, None] = {}
        reads: dict[torch.fx.Node, None] = dict.fromkeys(self._gradients)
        sizes: dict[torch.fx.Node, None] = {}
        pending = list(self._late)
        seen = set(self._gradients)
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in kept or node.op == "placeholder" or self._is_written(node):
                reads[node] = None
            elif node.op == "get_attr":
                continue
            elif node.target in _SIZES:
                sizes[node] = None
            else:
                computing[node] = None
                pending += node.all_input_nodes
        found: dict[torch.fx.Node, tuple[torch.fx.Node, int | None]] = {}
        for node in sizes:
            tensor = as_node(node.args[0])
            if tensor in computing or tensor in reads or tensor.op == "get_attr":
                computing[node] = None
            else:
                found[node] = (node, None)
        return computing, reads, found

    # ---- sizes ----

    def _numbers(
        self,
        backward: dict[torch.fx.Node, None],
        reads: dict[torch.fx.Node, None],
        sizes: dict[torch.fx.Node, tuple[torch.fx.Node, int | None]],
    ) -> list[torch.fx.Node]:
        """The numbers that the forward hands to the backward. Fills in `sizes`, and adds to `reads`."""
        numbers: dict[sympy.Basic, torch.fx.Node] = {}
        for node in sizes:
            wanted = expression(node.meta["val"])
            known = _axis_of(reads, wanted)
            if known is None:
                known = (numbers.setdefault(wanted, node), None)
            sizes[node] = known
        bound = {size for node in reads for size in sizes_of(node.meta["val"])} | set(numbers)
        symbols: dict[sympy.Basic, None] = {}
        for node in (*reads, *backward, *numbers.values()):
            symbols.update(dict.fromkeys(symbols_of(node.meta.get("val"))))
        made = {symbol for node in backward for symbol in sizes_of(node.meta.get("val"))}
        for symbol in symbols:
            if symbol in bound:
                continue
            tensor, axis = _axis_of(self._inputs, symbol) or (None, None)
            if tensor is not None and axis is not None:
                numbers[symbol] = self._size(tensor, axis)
                continue
            holding = next((n for n in self._inputs if symbol in symbols_of(n.meta["val"])), None)
            if holding is not None:
                reads[holding] = None
            elif symbol not in made:
                raise CaptureError(
                    f"the backward needs the size {symbol}, which comes out of the data",
                    hint="make the shapes of intermediate results depend on the shapes of the inputs only",
                )
        return list(numbers.values())

    def _size(self, tensor: torch.fx.Node, axis: int) -> torch.fx.Node:
        with self._graph.inserting_after(self._graph.find_nodes(op="placeholder")[-1]):
            node = self._graph.call_function(_aten.sym_size.int, (tensor, axis))
        node.meta["val"] = tensor.meta["val"].shape[axis]
        return node


def _without_views(node: torch.fx.Node) -> torch.fx.Node:
    """What a view shows. Keeping the view would copy it, and views cost nothing in the backward."""
    while node.op == "call_function":
        # Some views are parts of a list.
        view = node.args[0] if node.target is operator.getitem else node
        if not isinstance(view, torch.fx.Node) or view.target in _APART or not is_view(view):
            break
        base = view.args[0]
        if not isinstance(base, torch.fx.Node):
            break
        node = base
    return node


def _axis_of(tensors: Iterable[torch.fx.Node], size: sympy.Basic) -> tuple[torch.fx.Node, int | None] | None:
    """A tensor and an axis with this size, or (the number itself, None)."""
    for node in tensors:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and expression(value) == size:
            return node, None
        for axis, own in enumerate(getattr(value, "shape", ())):
            if expression(own) == size:
                return node, axis
    return None


def _placeholders_first(graph: torch.fx.Graph) -> None:
    first = next(iter(graph.nodes))
    for node in reversed(graph.find_nodes(op="placeholder")):
        if node is not first:
            first.prepend(node)
            first = node
