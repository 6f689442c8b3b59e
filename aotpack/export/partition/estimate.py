"""What a plan costs: numbers of a problem in lists, for searches over many plans. A plan is a device for each block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from aotpack.errors import PartitionError
from aotpack.export.partition.graph import ENTRY, stage_order
from aotpack.export.partition.memory import stage_bytes
from aotpack.export.partition.plan import Problem

LATENCY = "latency"
THROUGHPUT = "throughput"

Assignment = tuple[int, ...]
"""By block, the index of its device. A device has one stage."""


class Estimate:
    """Costs of assignments: seconds of a call, or between calls of a pipeline."""

    def __init__(self, problem: Problem, objective: str) -> None:
        if objective not in (LATENCY, THROUGHPUT):
            raise PartitionError(
                f"the objective is {objective!r}", hint=f"use {LATENCY!r} (of a call) or {THROUGHPUT!r} (of a pipeline)"
            )
        self.problem = problem
        self.objective = objective
        self.graph = problem.graph
        self.count = len(problem.graph.blocks)
        self.limits = [device.memory_bytes for device in problem.devices]
        self.seconds = [[problem.seconds(block, device) for device in problem.devices] for block in range(self.count)]
        # (producer, readers, bytes) of what blocks hand to each other.
        self.handed = [
            (value.producer, tuple(value.readers), value.nbytes)
            for value in self.graph.values
            if value.producer != ENTRY and value.readers
        ]

    def transfer(self, source: int, target: int, nbytes: float) -> float:
        """Seconds of a transfer between devices."""
        devices = self.problem.devices
        return self.problem.topology.transfer_seconds(devices[source], devices[target], int(nbytes))

    def cost(self, assignment: Sequence[int]) -> float:
        """The seconds of an assignment; infinite where its stages need each other."""
        order, cyclic = stage_order(self.graph, assignment)
        if cyclic:
            return math.inf
        loads = dict.fromkeys(order, 0.0)
        for block, device in enumerate(assignment):
            loads[device] += self.seconds[block][device]
        moved: dict[tuple[int, int], int] = {}
        for producer, readers, nbytes in self.handed:
            source = assignment[producer]
            for target in {assignment[reader] for reader in readers}:
                if target != source:
                    moved[source, target] = moved.get((source, target), 0) + nbytes
        incoming: dict[int, list[tuple[int, float]]] = {device: [] for device in order}
        for (source, target), nbytes in moved.items():
            incoming[target].append((source, self.transfer(source, target, nbytes)))
        if self.objective == THROUGHPUT:
            return max((loads[d] + sum(seconds for _, seconds in incoming[d]) for d in order), default=0.0)
        ends: dict[int, float] = {}
        for device in order:
            start = max((ends[source] + seconds for source, seconds in incoming[device]), default=0.0)
            ends[device] = start + loads[device]
        return max(ends.values(), default=0.0)

    def fits(self, assignment: Sequence[int], devices: Sequence[int]) -> bool:
        """Whether the stages of these devices fit on them."""
        return all(
            stage_bytes(self.graph, [b for b, d in enumerate(assignment) if d == device]).total <= self.limits[device]
            for device in devices
        )

    def orders(self) -> Iterator[list[int]]:
        """Orders of the blocks that agree with what they read: the program's, and branch after branch."""
        yield list(range(self.count))
        waiting = [len(found) for found in self.graph.before]
        ready = [block for block in reversed(range(self.count)) if waiting[block] == 0]
        order: list[int] = []
        while ready:
            block = ready.pop()
            order.append(block)
            for other in reversed(self.graph.after[block]):
                waiting[other] -= 1
                if waiting[other] == 0:
                    ready.append(other)
        yield order
