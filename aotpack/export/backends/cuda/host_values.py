"""Which single numbers of a program stay on the host, although it is for a GPU: those that control flow reads.

A branch and a loop are code of the host. Where it can compute what they depend on without the device, as a counter that
is compared with a size, no call waits for the stream. So these values, and what they are computed from, are tensors of
rank 0 in memory of the host. Everything else is on the device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.fx

from aotpack.export.ir import regions
from aotpack.export.torch_compat.operators import OpOverload

aten = torch.ops.aten

ITEM = aten._local_scalar_dense.default
_LOOP, _SCAN, _BRANCH = torch.ops.higher_order.while_loop, torch.ops.higher_order.scan, torch.ops.higher_order.cond

# Beside pointwise operators.
_COMPUTED = frozenset(
    [
        *(aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default),
        *(aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.clone.default),
        *(aten._to_copy.default, aten.lift_fresh_copy.default, aten.detach.default, aten.alias.default),
        *(aten.view.default, aten.reshape.default, aten.masked_fill.Tensor),
        *(aten.__and__.Scalar, aten.__and__.Tensor, aten.__or__.Scalar, aten.__or__.Tensor),
    ]
)
_DTYPES = frozenset(
    [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    ]
)


class HostValues:
    """The values of a graph, and of those inside at any depth, that stay on the host.

    Args:
        module: the graph; constants are its own, graphs inside get them as operands.
        numbers: its inputs that are in memory of the host.
        is_literal: whether an attribute is a tensor whose value is part of the code.
    """

    def __init__(
        self, module: torch.fx.GraphModule, numbers: Iterable[torch.fx.Node], is_literal: Callable[[str], bool]
    ) -> None:
        self._is_literal = is_literal
        # What the host can compute; of calls of graphs, for each result.
        self._known: dict[torch.fx.Node, Any] = dict.fromkeys(numbers, True)
        self._module_of: dict[torch.fx.Graph, torch.fx.GraphModule] = {}
        self._slot_of: dict[torch.fx.Node, tuple[torch.fx.Node, int]] = {}
        self._nodes: set[torch.fx.Node] = set()
        self._slots: set[tuple[torch.fx.Node, int]] = set()
        self._results: set[tuple[torch.fx.Node, int]] = set()
        self._compute(module)
        for graph in list(self._module_of):
            self._choose_decisions(graph)

    def __contains__(self, node: torch.fx.Node) -> bool:
        """Whether the tensor of a node is in memory of the host."""
        return node in self._nodes

    def has_operand(self, call: torch.fx.Node, index: int) -> bool:
        """Whether the graphs of a call get this operand in memory of the host."""
        return (call, index) in self._slots

    def has_result(self, call: torch.fx.Node, index: int) -> bool:
        """Whether a call of graphs returns this result in memory of the host."""
        return (call, index) in self._results

    def replace(self, node: torch.fx.Node, by: torch.fx.Node) -> None:
        """Has `by` stand for a node of these."""
        self._nodes.remove(node)
        self._nodes.add(by)

    # ---- what the host can compute ----------------------------------------------------------------------------------

    def _compute(self, module: torch.fx.GraphModule) -> None:
        self._module_of[module.graph] = module
        names = [n for node in module.graph.nodes if regions.calls_graphs(node) for n in regions.given_regions(node)]
        for node in module.graph.nodes:
            if regions.calls_graphs(node):
                shared = any(names.count(name) > 1 for name in regions.given_regions(node))
                self._known[node] = self._compute_call(module, node, shared)
            elif node not in self._known:
                self._known[node] = self._is_computed(module, node)

    def _is_computed(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            return True
        if not isinstance(value, torch.Tensor) or value.dim() or value.dtype not in _DTYPES:
            return False
        if node.op == "get_attr":
            return self._is_literal(str(node.target))
        if node.target is operator.getitem:
            source, index = node.args
            results = self._known.get(source) if isinstance(source, torch.fx.Node) else None
            return isinstance(results, list) and isinstance(index, int) and results[index]
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            return False
        tags = node.target.tags
        pointwise = torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
        return (pointwise or node.target in _COMPUTED) and all(map(self._is_known, node.all_input_nodes))

    def _is_known(self, value: Any) -> bool:
        return not isinstance(value, torch.fx.Node) or self._known.get(value) is True

    def _compute_call(self, module: torch.fx.GraphModule, call: torch.fx.Node, shared: bool) -> list[bool]:
        inner = [regions.inner_graph(module, name) for name in regions.given_regions(call)]
        given = [not shared and self._is_known(operand) for operand in regions.operands_of(call)]
        carried = carried_count(call)
        if call.target is _SCAN:
            # What it takes apart has no rank 0.
            rows: Any = call.args[2]
            given[carried : carried + len(rows)] = [False] * len(rows)
        elif call.target is torch.ops.higher_order.map_impl:
            mapped: Any = call.args[1]
            given[: len(mapped)] = [False] * len(mapped)
        while True:
            for graph in inner:
                placeholders = graph.graph.find_nodes(op="placeholder")
                for index, (node, known) in enumerate(zip(placeholders, given, strict=True)):
                    value = node.meta.get("val")
                    self._known[node] = known or not isinstance(value, torch.Tensor)
                    self._slot_of[node] = call, index
                for node in graph.graph.nodes:
                    if node.op != "placeholder":
                        self._known.pop(node, None)
                self._compute(graph)
            returned = [[self._is_known(value) for value in results_of(graph)] for graph in inner]
            if call.target is _BRANCH:
                decided = not shared and self._is_known(call.args[0])
                return [decided and all(each) for each in zip(*returned, strict=True)]
            kept = [*map(operator.and_, given[:carried], returned[-1][:carried]), *given[carried:]]
            if kept == given:
                return [*given[:carried], *([False] * (len(returned[-1]) - carried))]
            given = kept

    # ---- what stays there -------------------------------------------------------------------------------------------

    def _choose_decisions(self, graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is ITEM or node.target is _BRANCH:
                self._choose(node.args[0])
            elif node.target is _LOOP:
                condition = regions.inner_graph(self._module_of[graph], regions.given_regions(node)[0])
                self._choose(results_of(condition)[0])

    def _choose(self, node: Any) -> None:
        """Has the host compute a value, and all that it is computed from, if it can."""
        if not isinstance(node, torch.fx.Node) or node in self._nodes or self._known.get(node) is not True:
            return
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return
        self._nodes.add(node)
        if node in self._slot_of:
            self._choose_slot(*self._slot_of[node])
        elif node.target is operator.getitem:
            call, index = node.args
            if isinstance(call, torch.fx.Node) and isinstance(index, int):
                self._choose_result(call, index)
        else:
            for source in node.all_input_nodes:
                self._choose(source)

    def _choose_slot(self, call: torch.fx.Node, index: int) -> None:
        if (call, index) in self._slots:
            return
        self._slots.add((call, index))
        self._choose(regions.operands_of(call)[index])
        # All graphs of a call get the same operand.
        for graph in self._inner(call):
            self._choose(graph.graph.find_nodes(op="placeholder")[index])
        if index < carried_count(call):
            self._choose_result(call, index)

    def _choose_result(self, call: torch.fx.Node, index: int) -> None:
        if (call, index) in self._results:
            return
        self._results.add((call, index))
        inner = self._inner(call)
        for graph in inner if call.target is _BRANCH else inner[-1:]:
            self._choose(results_of(graph)[index])
        for user in call.users:
            if user.target is operator.getitem and user.args[1] == index:
                self._choose(user)
        if call.target is not _BRANCH:
            self._choose_slot(call, index)

    def _inner(self, call: torch.fx.Node) -> list[torch.fx.GraphModule]:
        module = self._module_of[call.graph]
        return [regions.inner_graph(module, name) for name in regions.given_regions(call)]


def carried_count(call: torch.fx.Node) -> int:
    """How many operands of a call of graphs, the first ones, are the results of its step before."""
    carried: Any = call.args[2] if call.target is _LOOP else call.args[1] if call.target is _SCAN else ()
    return len(carried)


def results_of(module: torch.fx.GraphModule) -> list[Any]:
    """What a graph returns, in a list."""
    returned: Any = module.graph.output_node().args[0]
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]
