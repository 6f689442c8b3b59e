"""No mode puts more on a device than its budget, and stages can run in order: on random graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotpack.errors import DeviceMemoryError
from aotpack.export import Device, partition
from aotpack.export.partition.partitioner import COST, SIZE
from tests.export.partition.programs import ITEM, Made, held_bytes, program_of

SETTINGS = settings(max_examples=30, deadline=None)


@st.composite
def graphs(draw: Any, most: int = 30) -> list[Made]:
    count = draw(st.integers(2, most))
    nodes = []
    for index in range(count):
        reads = draw(st.sets(st.integers(max(-1, index - 6), index - 1), min_size=1, max_size=3))
        weight = draw(st.none() | st.integers(0, 5))
        nodes.append(
            Made(tuple(sorted(reads)), draw(st.integers(1, 50)), weight, 0 if weight is None else 20 * weight + 1)
        )
    return nodes


def check(nodes: Sequence[Made], devices: Sequence[Device], mode: str, **options: Any) -> int | None:
    """Partitions, and checks what must hold of every result; the number of stages, None where nothing was found."""
    try:
        found = partition(program_of(nodes), devices, mode, passes=False, **options)
    except DeviceMemoryError:
        return None
    place = {name: stage.index for stage in found.stages for name in stage.nodes}
    assert sorted(place) == sorted(f"n{index}" for index in range(len(nodes)))
    for index, node in enumerate(nodes):
        assert all(place[f"n{other}"] <= place[f"n{index}"] for other in node.reads if other >= 0)
    used: dict[str, int] = {}
    for stage in found.stages:
        blocks = [int(name[1:]) for name in stage.nodes]
        assert stage.bytes.total == held_bytes(nodes, blocks)
        used[stage.device.name] = used.get(stage.device.name, 0) + held_bytes(nodes, blocks)
    for device in devices:
        assert used.get(device.name, 0) <= device.memory_bytes
    assert used == found.device_bytes
    return len(found.stages)


@pytest.mark.parametrize(
    ("mode", "options"), [(SIZE, {}), (COST, {"objective": "latency"}), (COST, {"objective": "throughput"})]
)
def test_memory_is_never_over_a_budget(mode: str, options: dict[str, Any]) -> None:
    counts: list[int | None] = []

    @SETTINGS
    @given(graphs(), st.lists(st.integers(120, 500), min_size=1, max_size=4))
    def run(nodes: list[Made], budgets: list[int]) -> None:
        devices = [Device(f"d{i}", budget * ITEM) for i, budget in enumerate(budgets)]
        counts.append(check(nodes, devices, mode, **options))

    run()
    assert any(count is None for count in counts)
    assert any(count is not None and count > 1 for count in counts)


def test_a_single_block_counts_all_it_reads_and_makes() -> None:
    nodes = [Made((-1,), 7, 0, 11), Made((0,), 5)]
    found = partition(program_of(nodes, 3), [Device("a", 1 << 20)], passes=False)
    assert found.stages[0].bytes.total == ITEM * (11 + 3 + 12) == held_bytes(nodes, [0, 1], 3)
    info = found.nodes["n0"]
    assert (info.weights, info.inputs, info.outputs) == (11 * ITEM, 3 * ITEM, 7 * ITEM)


def test_weights_of_several_nodes_count_once_per_stage() -> None:
    nodes = [Made((-1,), 1, 0, 100), Made((0,), 1, 0, 100), Made((1,), 1, 0, 100)]
    (stage,) = partition(program_of(nodes), [Device("a", 1 << 20)], passes=False).stages
    assert stage.bytes.weights == 100 * ITEM
    split = partition(
        program_of(nodes),
        [Device("a", 1 << 20), Device("b", 1 << 20)],
        "aot",
        partitions=[["n0", "n1"], ["n2"]],
        passes=False,
    )
    assert [stage.bytes.weights for stage in split.stages] == [100 * ITEM, 100 * ITEM]
