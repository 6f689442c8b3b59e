"""Assigns one of two labels to each of many variables at the least cost: a minimum cut, which is exact.

The construction is that of V. Kolmogorov and R. Zabih, "What Energy Functions Can Be Minimized via Graph Cuts?", with
auxiliary nodes for costs that several readers of a value share. To import networkx takes longer than most models take
here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from aotpack.export.passes.cpu.layouts.max_flow import Network

_ZERO, _ONE = "zero", "one"  # the terminals; variables are wrapped, so that no name of theirs collides


class Assignment:
    """A problem under construction. Costs are whole numbers of at least 0; None is a cost that nothing is worth."""

    def __init__(self) -> None:
        # Capacities by the ends of an edge; None is unbounded.
        self._edges: dict[tuple[Hashable, Hashable], int | None] = {}
        self._variables: dict[Hashable, None] = {}
        self._auxiliary = 0

    def add(self, variable: Hashable, label: int | None = None) -> None:
        """A variable, free or of a fixed label."""
        self._variables[variable] = None
        if label == 0:
            self._edge(_ZERO, ("variable", variable), None)
        elif label == 1:
            self._edge(("variable", variable), _ONE, None)

    def differ(self, a: Hashable, b: Hashable, cost: int | None) -> None:
        """`cost` is paid where the labels of `a` and `b` differ."""
        self._edge(("variable", a), ("variable", b), cost)
        self._edge(("variable", b), ("variable", a), cost)

    def share(self, value: Hashable, label: int, readers: Iterable[Hashable | int], cost: int | None) -> None:
        """`cost` is paid once where the label of `value` is not `label`, but that of at least one reader is.

        Readers are variables, or a label (0 or 1) for a reader that has no choice.
        """
        wanted = self._fresh()
        of_value = ("variable", value)
        for reader in readers:
            node: Hashable = (_ZERO, _ONE)[reader] if isinstance(reader, int) else ("variable", reader)
            self._directed(wanted, node, label, None)
        self._directed(of_value, wanted, label, cost)

    def solve(self) -> tuple[dict[Hashable, int], int]:
        """The labels and their cost. Among equally good ones the one with the most zeros."""
        network = Network(_ZERO, _ONE)
        for (a, b), cost in self._edges.items():
            network.add(a, b, cost)
        cost, ones = network.minimum_cut()
        return {variable: int(("variable", variable) in ones) for variable in self._variables}, cost

    def _fresh(self) -> Hashable:
        self._auxiliary += 1
        return ("auxiliary", self._auxiliary)

    def _directed(self, a: Hashable, b: Hashable, label: int, cost: int | None) -> None:
        """Paid where `b` has the label and `a` has not."""
        self._edge(*((a, b) if label else (b, a)), cost=cost)

    def _edge(self, a: Hashable, b: Hashable, cost: int | None) -> None:
        if a == b or cost == 0:
            return
        for end in (a, b):
            if isinstance(end, tuple) and end[0] == "variable":
                self._variables.setdefault(end[1])
        known = self._edges.get((a, b), 0)
        self._edges[a, b] = None if known is None or cost is None else known + cost
