"""Maximum flows and minimum cuts: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with
power estimation", 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable


class Network:
    """A directed network. Capacities are whole numbers of at least 0; None is unbounded."""

    def __init__(self, source: Hashable, sink: Hashable) -> None:
        self._numbers: dict[Hashable, int] = {}
        # An edge has an even number; the one after it goes the other way. `_leaving` has the edges of each node.
        self._ends: list[int] = []
        self._left: list[int] = []
        self._leaving: list[list[int]] = []
        self._unbounded: list[int] = []
        self._source, self._sink = self._number(source), self._number(sink)

    def add(self, a: Hashable, b: Hashable, capacity: int | None) -> None:
        """An edge from `a` to `b`."""
        if capacity is None:
            self._unbounded.append(len(self._ends))
        for begin, end, left in ((a, b, capacity or 0), (b, a, 0)):
            self._leaving[self._number(begin)].append(len(self._ends))
            self._ends.append(self._number(end))
            self._left.append(left)

    def minimum_cut(self) -> tuple[int, set[Hashable]]:
        """The greatest flow, and the nodes on the sink's side of a cut of that capacity: of all such cuts the one with
        the fewest. To be called once.

        Raises:
            ValueError: the flow is unbounded.
        """
        bound = sum(self._left) + 1
        for edge in self._unbounded:
            self._left[edge] = bound
        flow = 0
        while (levels := self._levels())[self._sink] >= 0:
            flow += self._blocking_flow(levels)
            if flow >= bound:
                raise ValueError("the flow is unbounded")
        names = list(self._numbers)
        return flow, {names[number] for number in self._reaching_sink()}

    def _number(self, name: Hashable) -> int:
        number = self._numbers.setdefault(name, len(self._numbers))
        if number == len(self._leaving):
            self._leaving.append([])
        return number

    def _levels(self) -> list[int]:
        """The distance of each node from the source over edges that have capacity left; -1 for those out of reach."""
        levels = [-1] * len(self._leaving)
        levels[self._source] = 0
        pending = deque([self._source])
        while pending:
            node = pending.popleft()
            for edge in self._leaving[node]:
                end = self._ends[edge]
                if self._left[edge] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    pending.append(end)
        return levels

    def _blocking_flow(self, levels: list[int]) -> int:
        """Sends all that shortest paths can carry; returns how much that is."""
        ends, left, total = self._ends, self._left, 0
        # Of each node, how many of its edges are of no more use.
        tried = [0] * len(levels)
        path: list[int] = []
        node = self._source
        while True:
            if node == self._sink:
                carried = min(left[edge] for edge in path)
                for edge in path:
                    left[edge] -= carried
                    left[edge ^ 1] += carried
                total += carried
                # From the first edge that is full now.
                full = next(place for place, edge in enumerate(path) if not left[edge])
                node = ends[path[full] ^ 1]
                del path[full:]
                continue
            leaving = self._leaving[node]
            while tried[node] < len(leaving):
                edge = leaving[tried[node]]
                if left[edge] and levels[ends[edge]] == levels[node] + 1:
                    break
                tried[node] += 1
            else:
                if not path:
                    return total
                node = ends[path.pop() ^ 1]
                tried[node] += 1
                continue
            path.append(edge)
            node = ends[edge]

    def _reaching_sink(self) -> set[int]:
        """The nodes from which edges with capacity left lead to the sink."""
        found, pending = {self._sink}, [self._sink]
        while pending:
            for edge in self._leaving[pending.pop()]:
                before = self._ends[edge]
                if self._left[edge ^ 1] and before not in found:
                    found.add(before)
                    pending.append(before)
        return found
