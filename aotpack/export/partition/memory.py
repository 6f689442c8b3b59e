"""The memory of stages and devices.

A stage holds its weights, its inputs, and the results and intermediate values that are live at one time while its
blocks run in order. Values that other stages read, or that the entry returns, are live until the end of the stage. What
stages on one device hold adds up, but for weights that they share. This is an upper bound: kernels fuse, and views
share memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotpack.export.partition.graph import WorkGraph


@dataclass(frozen=True)
class StageBytes:
    """Bytes of a stage.

    Attributes:
        weights: constants, each once.
        inputs: inputs of the entry and results of other stages that it reads.
        outputs: what other stages read or the entry returns.
        working: the most that results and intermediate values take at one time.
    """

    weights: int
    inputs: int
    outputs: int
    working: int

    @property
    def values(self) -> int:
        """All but weights."""
        return self.inputs + self.working

    @property
    def total(self) -> int:
        return self.weights + self.values


class StageMemory:
    """The memory of a stage to which blocks are added in order; what a block would add is known before it is added."""

    def __init__(self, graph: WorkGraph) -> None:
        self._graph = graph
        self._weights: set[int] = set()
        self._blocks: set[int] = set()
        self._weight_bytes = 0
        self._inputs: set[int] = set()
        self._input_bytes = 0
        self._live = 0
        self._peak = 0
        # How many readers of a value of this stage have not run.
        self._pending: dict[int, int] = {}

    @property
    def total(self) -> int:
        return self._weight_bytes + self._input_bytes + self._peak

    @property
    def bytes(self) -> StageBytes:
        """As if no block were to follow."""
        values = self._graph.values
        outputs = sum(values[v].nbytes for v, count in self._pending.items() if count or values[v].is_result)
        return StageBytes(self._weight_bytes, self._input_bytes, outputs, self._peak)

    def with_block(self, index: int) -> int:
        """The total with one more block."""
        block, values = self._graph.blocks[index], self._graph.values
        weights = sum(self._graph.weights[w].nbytes for w in block.weights if w not in self._weights)
        foreign = (v for v in block.reads if values[v].producer not in self._blocks)
        inputs = sum(values[v].nbytes for v in foreign if v not in self._inputs)
        made = block.scratch + sum(values[v].nbytes for v in block.makes)
        return self._weight_bytes + weights + self._input_bytes + inputs + max(self._peak, self._live + made)

    def add(self, index: int) -> None:
        """Adds a block, which comes after those before."""
        block, values = self._graph.blocks[index], self._graph.values
        for weight in block.weights:
            if weight not in self._weights:
                self._weight_bytes += self._graph.weights[weight].nbytes
                self._weights.add(weight)
        # What the block reads is there until it has run.
        freed = 0
        for number in block.reads:
            value = values[number]
            if value.producer in self._blocks:
                self._pending[number] -= 1
                if not self._pending[number] and not value.is_result:
                    freed += value.nbytes
            elif number not in self._inputs:
                self._inputs.add(number)
                self._input_bytes += value.nbytes
        made = 0
        for number in block.makes:
            made += values[number].nbytes
            self._pending[number] = len(values[number].readers)
        self._peak = max(self._peak, self._live + block.scratch + made)
        self._live += made - freed
        self._blocks.add(index)


def stage_bytes(graph: WorkGraph, blocks: Iterable[int]) -> StageBytes:
    """The bytes of a stage of these blocks."""
    memory = StageMemory(graph)
    for index in sorted(blocks):
        memory.add(index)
    return memory.bytes


def device_bytes(graph: WorkGraph, stages: Sequence[Sequence[int]]) -> int:
    """The bytes of a device with these stages."""
    weights = {weight for stage in stages for index in stage for weight in graph.blocks[index].weights}
    return sum(graph.weights[w].nbytes for w in weights) + sum(stage_bytes(graph, stage).values for stage in stages)
