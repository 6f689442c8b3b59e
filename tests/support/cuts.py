"""Cutting programs into stages at random places, for tests: partitioners of `build_archive`."""

from __future__ import annotations

import random
from collections.abc import Callable

from aotpack.export import Device, Part, Partitioning, partition
from aotpack.export.ir.program import Program
from aotpack.export.partition.graph import WorkGraph
from aotpack.export.partition.sizes import Sizes

ROOM = 1 << 40


def cut_into(count: int, seed: int = 0, *, towers: bool = False) -> Callable[[Program], Partitioning]:
    """A function that cuts a program into `count` stages, or as many as it has blocks, on devices `d0`, `d1`, …

    `towers`: blocks that do not need each other are spread over stages, not only one run of blocks after another.
    """

    def run(program: Program) -> Partitioning:
        rng = random.Random(seed)
        graph = WorkGraph(program, Sizes(program))
        blocks = len(graph.blocks)
        places = sorted(rng.sample(range(1, blocks), min(count, blocks) - 1)) if blocks > 1 else []
        stage = 0
        stages: list[int] = []
        for index in range(blocks):
            if index in places:
                stage += 1
            first = max((stages[other] for other in graph.before[index]), default=0)
            stages.append(rng.randint(first, stage) if towers else stage)
        used = sorted(set(stages))
        parts = [
            Part(tuple(node.name for i, block in enumerate(graph.blocks) if stages[i] == s for node in block.nodes))
            for s in used
        ]
        devices = [Device(f"d{i}", ROOM) for i in range(len(parts))]
        return partition(program, devices, "aot", partitions=parts, passes=False)

    return run
