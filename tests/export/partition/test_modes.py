"""What each mode does, its errors, and the time that large programs take."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aotpack.errors import (
    DeviceMemoryError,
    NodeTooLargeError,
    PartitionError,
    StageCycleError,
    UnknownNodeError,
)
from aotpack.export import Device, Link, Part, Topology, partition
from tests.export.partition.programs import ITEM, Made, chain, program_of

KB = 1024


def split(nodes: list[Made], devices: Any, mode: str = "size", **options: Any) -> Any:
    return partition(program_of(nodes), devices, mode, passes=False, **options)


def test_devices_are_filled_in_order_of_memory() -> None:
    # Each node needs its weight, what it reads and what it makes: 10 + 1 + 1 elements.
    found = split(chain(6, 1, 10), [Device("small", 24 * ITEM), Device("large", 44 * ITEM), Device("tiny", 13 * ITEM)])
    assert [(stage.device.name, stage.nodes) for stage in found.stages] == [
        ("large", ("n0", "n1", "n2", "n3")),
        ("small", ("n4", "n5")),
    ]
    (transfer,) = found.transfers
    assert (transfer.source, transfer.target, transfer.values, transfer.nbytes) == (0, 1, ("n3",), ITEM)


def test_too_few_devices() -> None:
    with pytest.raises(
        DeviceMemoryError, match=r"2 devices with 160 bytes in total are too few.*from 'n\d' on"
    ) as info:
        split(chain(9, 1, 10), [Device("a", 80), Device("b", 80)])
    assert (info.value.available, info.value.nbytes) == (160, 9 * 10 * ITEM + 3 * ITEM)


@pytest.mark.parametrize("mode", ["size", "cost-aware"])
def test_a_node_that_fits_nowhere_is_named(mode: str) -> None:
    nodes = [Made((-1,)), Made((0,), 100, 0, 1000), Made((1,))]
    with pytest.raises(
        NodeTooLargeError, match=r"'n1' \(aten.cat\) needs 4404 bytes .*largest device, 'b', has 4000"
    ) as info:
        split(nodes, [Device("a", 3000), Device("b", 4000)], mode)
    assert (info.value.node, info.value.nbytes, info.value.available) == ("n1", 4404, 4000)


def test_mapping_completes_what_it_leaves_open() -> None:
    found = split(chain(5), [Device("a", KB), Device("b", KB)], "mapping", mapping={"n1": "a", "n3": "b"})
    assert [(stage.device.name, stage.nodes) for stage in found.stages] == [
        ("a", ("n0", "n1", "n2")),
        ("b", ("n3", "n4")),
    ]


def test_unknown_names() -> None:
    with pytest.raises(UnknownNodeError, match="no node or module 'n7'") as info:
        split(chain(3), [Device("a", KB)], "mapping", mapping={"n7": "a"})
    assert info.value.names == ("n7",)
    with pytest.raises(UnknownNodeError, match="'m0', 'm1'"):
        split(chain(3), [Device("a", KB)], "aot", partitions=[["n0", "n1", "n2", "m0", "m1"]])
    with pytest.raises(PartitionError, match="there is no device 'c'"):
        split(chain(3), [Device("a", KB)], "mapping", mapping={"n1": "c"})


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("mapping", {"mapping": {"n0": "a", "n1": "b", "n2": "a"}}),
        ("aot", {"partitions": [["n0", "n2"], ["n1"]]}),
    ],
)
def test_stages_that_need_each_other(mode: str, options: dict[str, Any]) -> None:
    with pytest.raises(StageCycleError, match=r"need results of each other: .*n1 \(b\)") as info:
        split(chain(3), [Device("a", KB), Device("b", KB)], mode, **options)
    assert {"n0", "n1", "n2"} >= set(info.value.nodes)


def test_given_partitions_are_checked() -> None:
    devices = [Device("a", KB), Device("b", KB)]
    wrong: list[tuple[list[Any], str]] = [
        ([["n0", "n1"], ["n1", "n2"]], "'n1' is in the partitions 0 and 1"),
        ([["n0"], ["n1"]], "1 nodes are in no partition: 'n2'"),
        ([["n0"], ["n1"], ["n2"]], "3 partitions, but 2 devices"),
        ([Part(("n0", "n1", "n2"), "c")], "there is no device 'c'"),
    ]
    for partitions, message in wrong:
        with pytest.raises(PartitionError, match=message):
            split(chain(3), devices, "aot", partitions=partitions)
    # Inputs may be listed too, in whatever order; several partitions may be on one device.
    parts = [Part(("n2",), "a"), Part(("x", "n1", "n0"), "a")]
    found = split(chain(3), devices, "aot", partitions=parts)
    assert [(stage.device.name, stage.nodes) for stage in found.stages] == [("a", ("n0", "n1")), ("a", ("n2",))]
    assert found.device_bytes == {"a": 3 * ITEM + 2 * ITEM}
    with pytest.raises(DeviceMemoryError, match="the stages on device 'a' need 404 bytes, but it has 100"):
        split(chain(1, 100), [Device("a", 100)], "aot", partitions=[["n0"]])


def test_arguments_that_do_not_fit_together() -> None:
    device = Device("a", KB)
    for arguments, options, message in [
        (([device], "fastest"), {}, "unknown mode 'fastest'"),
        (([device], "mapping"), {}, "`mapping` goes with the mode 'mapping'"),
        (([device], "size"), {"mapping": {}}, "the mode is 'size'"),
        (([device, device], "size"), {}, "two devices have the name 'a'"),
        (([], "size"), {}, "no devices"),
        (([device], "cost-aware"), {"objective": "cheap"}, "the objective is 'cheap'"),
        (([device], "sparse-nn"), {}, "needs a device of the kind 'memory'"),
    ]:
        with pytest.raises(PartitionError, match=message):
            split(chain(2), *arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(PartitionError, match="a link names the device 'z'"):
        Topology((device,), (Link("a", "z", 1e9),))
    with pytest.raises(PartitionError, match="kind 'gpu'"):
        Device("g", KB, kind="gpu")


def test_links_count_in_both_directions() -> None:
    a, b, c = (Device(name, KB) for name in "abc")
    topology = Topology((a, b, c), (Link("a", "b", 100.0, 0.5), Link("b", "a", 10.0)), transfer_rate=1.0)
    assert topology.transfer_seconds(a, b, 100) == 1.5
    assert topology.transfer_seconds(b, a, 100) == 10.0
    assert topology.transfer_seconds(a, c, 7) == 7.0
    assert topology.transfer_seconds(a, a, 7) == topology.transfer_seconds(a, b, 0) == 0.0


def test_the_critical_path_is_the_slower_branch() -> None:
    """Two branches side by side, then their sum."""
    nodes = [Made((-1,), 10), Made((0,), 10), Made((0,), 10), Made((1, 2), 20)]
    latencies = {"n0": 1.0, "n1": 2.0, "n2": 5.0, "n3": 1.0}
    topology = Topology(tuple(Device(name, KB) for name in "abc"), transfer_rate=100.0)
    mapping = {"n0": "a", "n1": "a", "n2": "b", "n3": "c"}
    found = split(nodes, topology, "mapping", mapping=mapping, latencies=latencies)
    assert [stage.device.name for stage in found.stages] == ["a", "b", "c"]
    assert found.critical_path == (0, 1, 2)
    # a: 3; to b 0.4; b: 5; to c 0.4; c: 1. A stage starts when all of the stages before it have ended.
    assert found.seconds == pytest.approx(3 + 0.4 + 5 + 0.4 + 1)
    assert found.slowest_stage == pytest.approx(5.4)
    assert found.transferred_bytes == 3 * 10 * ITEM


def test_stages_on_one_device_run_one_after_the_other() -> None:
    nodes = [Made((-1,)), Made((-1,)), Made((0, 1))]
    parts = [Part(("n0",), "a"), Part(("n1",), "a"), Part(("n2",), "b")]
    latencies = {"n0": 1.0, "n1": 2.0, "n2": 4.0}
    found = split(nodes, [Device("a", KB), Device("b", KB)], "aot", partitions=parts, latencies=latencies)
    assert (found.seconds, found.critical_path) == (7.0, (0, 1, 2))


@pytest.mark.parametrize("mode", ["size", "cost-aware", "throughput", "sparse-nn", "mapping", "aot"])
def test_ten_thousand_nodes(mode: str) -> None:
    """In at most five seconds, of the process's own: other programs may have the processor meanwhile."""
    count = 10_000
    nodes = [
        Made((index - 1,) if index % 7 else (index - 1, max(-1, index - 40)), 1 + index % 13, index, 20)
        for index in range(count)
    ]
    program = program_of(nodes)
    devices = [Device(f"d{i}", (count * 20 // 3 + 2000) * ITEM) for i in range(4)]
    options: dict[str, Any] = {}
    if mode == "sparse-nn":
        devices.append(Device("memory", KB, kind="memory"))
    elif mode == "mapping":
        options["mapping"] = {f"n{index}": f"d{index // 2500}" for index in range(count)}
    elif mode == "aot":
        options["partitions"] = [[f"n{i}" for i in range(start, start + 2500)] for start in range(0, count, 2500)]
    elif mode == "throughput":
        mode, options["objective"] = "cost-aware", mode
    start = time.process_time()
    found = partition(program, devices, mode, passes=False, **options)
    seconds = time.process_time() - start
    assert len(found.stages) >= 3
    assert sum(len(stage.nodes) for stage in found.stages) == count
    assert seconds <= 5, f"{mode}: {seconds:.2f} s of CPU time"
