"""Mode "size": blocks in order, each on the current device while it fits, then on the next; largest device first."""

from __future__ import annotations

from collections.abc import Sequence

from aotpack.errors import DeviceMemoryError
from aotpack.export.partition.devices import Device
from aotpack.export.partition.memory import StageMemory, stage_bytes
from aotpack.export.partition.plan import Plan, Problem, refuse_large_blocks


def plan_by_size(problem: Problem) -> Plan:
    """The plan.

    Raises:
        NodeTooLargeError: a node fits on no device.
        DeviceMemoryError: the devices are too few or too small.
    """
    blocks = range(len(problem.graph.blocks))
    return Plan.by_device([device for _, device in sorted(fill(problem, blocks, problem.devices).items())])


def fill(problem: Problem, blocks: Sequence[int], devices: Sequence[Device]) -> dict[int, Device]:
    """A device for each block. Only blocks that come one after another are on one device.

    Raises:
        NodeTooLargeError: a block fits on none of the devices.
        DeviceMemoryError: blocks are left over.
    """
    refuse_large_blocks(problem, blocks, devices)
    found: dict[int, Device] = {}
    largest_first = sorted(devices, key=lambda device: -device.memory_bytes)
    remaining = iter(largest_first)
    device = next(remaining, None)
    memory = StageMemory(problem.graph)
    for position, block in enumerate(blocks):
        while device is not None and memory.with_block(block) > device.memory_bytes:
            device, memory = next(remaining, None), StageMemory(problem.graph)
        if device is None:
            _refuse(problem, blocks, position, largest_first)
        else:
            memory.add(block)
            found[block] = device
    return found


def _refuse(problem: Problem, blocks: Sequence[int], position: int, devices: Sequence[Device]) -> None:
    whole = stage_bytes(problem.graph, blocks).total
    left = stage_bytes(problem.graph, blocks[position:]).total
    available = sum(device.memory_bytes for device in devices)
    name = problem.graph.blocks[blocks[position]].name
    raise DeviceMemoryError(
        f"{len(devices)} devices with {available} bytes in total are too few: on one device the program would need "
        f"{whole} bytes, and {len(blocks) - position} of {len(blocks)} blocks of nodes, from {name!r} on, are left "
        f"over with {left} bytes",
        nbytes=whole,
        available=available,
        hint="add devices, or devices with more memory",
    )
