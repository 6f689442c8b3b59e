"""`saturate_host`: further copies of all stages on devices that are left over."""

from __future__ import annotations

from collections.abc import Sequence

from aotpack.export.partition.devices import Device
from aotpack.export.partition.result import Partitioning


def replicas(partitioning: Partitioning) -> tuple[tuple[Device, ...], ...]:
    """Devices for copies of all stages: for each copy, a device for each stage.

    A device that holds several stages is replaced by one device. Each takes the smallest device of its kind that is
    left and has enough memory, those that need most first.
    """
    used = list(dict.fromkeys(stage.device for stage in partitioning.stages))
    left = [device for device in partitioning.topology.devices if device not in used]
    found: list[tuple[Device, ...]] = []
    while used:
        match = _match(partitioning, used, left)
        if match is None:
            break
        left = [device for device in left if device not in match.values()]
        found.append(tuple(match[stage.device] for stage in partitioning.stages))
    return tuple(found)


def _match(partitioning: Partitioning, used: Sequence[Device], left: Sequence[Device]) -> dict[Device, Device] | None:
    match: dict[Device, Device] = {}
    for device in sorted(used, key=lambda device: -partitioning.device_bytes[device.name]):
        fitting = [
            other
            for other in left
            if other not in match.values()
            and other.kind == device.kind
            and other.memory_bytes >= partitioning.device_bytes[device.name]
        ]
        if not fitting:
            return None
        match[device] = min(fitting, key=lambda other: other.memory_bytes)
    return match
