"""The layouts of a graph as an assignment problem: which two orders each value may have, and what each choice costs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.fx

from aotpack.export.passes.cpu.layouts.min_cut import Assignment
from aotpack.export.passes.cpu.layouts.operators import channels_last_calls, rule_of
from aotpack.export.passes.cpu.layouts.orders import (
    Order,
    bytes_of,
    channels_last,
    contiguous,
    is_one,
    order_of,
    same_order,
)
from aotpack.export.passes.cpu.layouts.rules import Demand, Density, Flow, Kind, Need, Rule, density_of_view, tensor_of
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.spec import Signature

# Costs in bytes moved, as multiples of the value's bytes.
_COPY = 2  # read and written
_STRIDED = 1  # a loop that reads one order and writes another

# What a demand wants beyond an order.
DENSITY_OF = {Need.DENSE: Density.DENSE, Need.EVEN: Density.EVEN}

Pair = tuple[Order, Order]


class Layout(NamedTuple):
    """How a value lies: the order of its dims, and how closely."""

    order: Order
    density: Density = Density.DENSE


class LayoutModel:
    """Orders and costs of a graph's values.

    Attributes:
        rules: of every node.
        pairs: the two orders that a value may have, of label 0 and 1, for the values that have a choice or whose
            readers have one.
    """

    def __init__(self, graph: torch.fx.Graph, signature: Signature, free: Callable[[torch.fx.Node], bool]) -> None:
        """`free` says which values are converted for nothing."""
        self._graph = graph
        self._free = free
        self.rules: dict[torch.fx.Node, Rule] = {node: rule_of(node) for node in graph.nodes}
        output = graph.output_node()
        results: Any = output.args[0]
        demands = [
            Demand(result, tuple(spec.order))
            for result, spec in zip(results, signature.outputs, strict=True)
            if tensor_of(result) is not None
        ]
        self.rules[output] = replace(self.rules[output], demands=tuple(demands))
        self.pairs: dict[torch.fx.Node, Pair] = {}
        self._spread_pairs()
        self._labels: dict[Hashable, int] = {}

    # ---- answers, after solve() ----

    def order(self, node: torch.fx.Node) -> Order:
        """The order in which the result of a node is to lie."""
        pair = self.pairs.get(node)
        return self._own(node) if pair is None else pair[self._labels[node]]

    def read_order(self, node: torch.fx.Node) -> Order | None:
        """The order of the result along which operands are to be read; None where it has no choice."""
        pair = self.pairs.get(node)
        return None if pair is None else pair[self._labels[self._input(node)]]

    def turns(self, node: torch.fx.Node) -> bool:
        """Whether a loop is to write in another order than it reads."""
        return node in self.pairs and self._labels[self._input(node)] != self._labels[node]

    def is_dense(self, node: torch.fx.Node) -> bool:
        """Whether a value as it was captured has no holes."""
        value = tensor_of(node)
        if value is None:
            return False
        strides, sizes = value.stride(), value.shape
        step = 1
        for d in reversed(order_of(value)):
            if is_one(sizes[d]):
                continue
            if size_hint(strides[d]) != step:
                return False
            step *= size_hint(sizes[d])
        return True

    def own_density(self, node: torch.fx.Node) -> Density:
        """Of a value that does not look at another's memory."""
        return Density.DENSE if node.op == "call_function" or self.is_dense(node) else Density.HOLES

    @staticmethod
    def has_rows(order: Order, sizes: Any) -> bool:
        """Whether the last dim is the innermost."""
        inner = [d for d in order if not is_one(sizes[d])]
        return not inner or is_one(sizes[-1]) or inner[-1] == len(order) - 1

    def can_serve(self, source: torch.fx.Node, demand: Demand) -> bool:
        """Whether one of the two orders of a value is what a demand wants."""
        return any(self._meets(source, order, demand) for order in self.pairs[source])

    def rename(self, node: torch.fx.Node, by: torch.fx.Node) -> None:
        """`by` stands for `node` from now on, for those who read it."""
        self.rules[by] = Rule(Kind.FIXED)
        if node in self.pairs:
            self.pairs[by] = self.pairs[node]
            self._labels[by] = self._labels[node]
        for user in by.users:
            rule = self.rules[user]
            flows = tuple(Flow(by, f.relation) if f.source is node else f for f in rule.flows)
            demands = tuple(replace(d, source=by) if d.source is node else d for d in rule.demands)
            self.rules[user] = replace(rule, flows=flows, demands=demands)

    # ---- pairs ----

    def _spread_pairs(self) -> None:
        """From what convolutions read and write, through all that follows its operands, in both directions."""
        queue: deque[torch.fx.Node] = deque()

        def give(node: torch.fx.Node, pair: tuple[Order | None, Order | None]) -> None:
            first, second = pair
            value = tensor_of(node)
            if node in self.pairs or first is None or second is None or value is None:
                return
            if len(first) != value.dim() or same_order(first, second, value.shape):
                return
            self.pairs[node] = (first, second)
            queue.append(node)

        for node in channels_last_calls(self._graph):
            for end in (node, *(demand.source for demand in self.rules[node].demands)):
                rank = tensor_of(end).dim()  # type: ignore[union-attr]
                give(end, (contiguous(rank), channels_last(rank)))
        while queue:
            node = queue.popleft()
            first, second = self.pairs[node]
            for flow in self.rules[node].flows:
                give(flow.source, (flow.relation.backward(first), flow.relation.backward(second)))
            for user in node.users:
                for flow in self.rules[user].flows:
                    if flow.source is node:
                        give(user, (flow.relation.forward(first), flow.relation.forward(second)))

    # ---- the problem ----

    def solve(self) -> None:
        """Assigns each value its order at the least cost."""
        problem = Assignment()
        for node in self.pairs:
            self._declare(problem, node)
        readers: dict[torch.fx.Node, tuple[list[Hashable | int], list[Hashable | int]]]
        readers = defaultdict(lambda: ([], []))
        copied: set[tuple[torch.fx.Node, int]] = set()
        for node, rule in self.rules.items():
            for flow in rule.flows:
                if flow.source in self.pairs:
                    for label in self._wanted(node, flow):
                        readers[flow.source][label].append(self._reader(node, label))
            for demand in rule.demands:
                if demand.source in self.pairs and demand.need is not Need.EXACT:
                    self._demand(demand, readers[demand.source], copied)
        for source, wanted in readers.items():
            value = source.meta["val"]
            cost = _COPY * bytes_of(value) if isinstance(value, torch.Tensor) else None
            for label in (0, 1):
                # A copy that is made in any case serves all who want it.
                if wanted[label] and (source, label) not in copied and not self._free(source):
                    problem.share(source, label, wanted[label], cost)
        self._labels, _ = problem.solve()

    def _declare(self, problem: Assignment, node: torch.fx.Node) -> None:
        rule = self.rules[node]
        if rule.kind is Kind.POINTWISE:
            problem.add(node)
            problem.add(self._input(node))
            problem.differ(self._input(node), node, _STRIDED * bytes_of(node.meta["val"]))
        elif rule.kind is not Kind.FIXED:
            problem.add(node)
        else:
            value = tensor_of(node)
            assert value is not None
            own = self._own(node)
            matches = [label for label, order in enumerate(self.pairs[node]) if same_order(own, order, value.shape)]
            if not matches:
                # An order that its readers did not think of.
                self.pairs[node] = (own, self.pairs[node][1])
            problem.add(node, matches[0] if matches else 0)

    def _input(self, node: torch.fx.Node) -> Hashable:
        return ("reads", node) if self.rules[node].kind is Kind.POINTWISE else node

    def _reader(self, node: torch.fx.Node, label: int) -> Hashable | int:
        return self._input(node) if node in self.pairs else label

    def _wanted(self, node: torch.fx.Node, flow: Flow) -> list[int]:
        """The labels in which a node, when it has them itself, wants an operand that may have the other."""
        orders = self.pairs[flow.source]
        if node not in self.pairs:
            fits = [flow.relation.forward(order) is not None for order in orders]
            return [] if fits[0] == fits[1] else [fits.index(True)]
        own = self.pairs[node]
        # Where the operand fits neither or both ways, its label does not matter.
        return [
            label
            for label in (0, 1)
            if flow.relation.agree(orders[label], own[label]) and not flow.relation.agree(orders[1 - label], own[label])
        ]

    def _demand(
        self,
        demand: Demand,
        wanted: tuple[list[Hashable | int], list[Hashable | int]],
        copied: set[tuple[torch.fx.Node, int]],
    ) -> None:
        source = demand.source
        fits = [self._meets(source, order, demand) for order in self.pairs[source]]
        if fits[0] == fits[1]:
            return
        label = fits.index(True)
        if self._density(source, label) < DENSITY_OF.get(demand.need, Density.HOLES):
            copied.add((source, label))
        else:
            wanted[label].append(label)

    def _meets(self, source: torch.fx.Node, order: Order, demand: Demand) -> bool:
        sizes = tensor_of(source).shape  # type: ignore[union-attr]
        if demand.need is Need.ROWS:
            return self.has_rows(order, sizes)
        return same_order(order, demand.order, sizes)

    def _density(self, node: torch.fx.Node, label: int) -> Density:
        """Of a value in one of its orders."""
        rule = self.rules[node]
        if rule.kind is not Kind.VIEW or not rule.flows:
            return self.own_density(node)
        source = rule.flows[0].source
        order = self.pairs[source][label] if source in self.pairs else self._own(source)
        sizes = tensor_of(source).shape  # type: ignore[union-attr]
        return density_of_view(rule, self._density(source, label), order, sizes)

    def _own(self, node: torch.fx.Node) -> Order:
        value = tensor_of(node)
        assert value is not None
        return order_of(value)
