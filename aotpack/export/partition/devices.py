"""Logical devices: memory budgets, speeds, and the links between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from aotpack.errors import PartitionError

COMPUTE = "compute"
MEMORY = "memory"


@dataclass(frozen=True)
class Device:
    """A logical device.

    Attributes:
        name: unique among the devices of a partitioning.
        memory_bytes: the budget for weights and values.
        kind: "compute", or "memory" for devices that hold embedding tables in the mode "sparse-nn".
        flops: floating-point operations per second, for nodes without a known latency.
        bandwidth: bytes of memory per second, for nodes without a known latency.
        overhead: seconds that each call of an operator costs, for nodes without a known latency.
    """

    name: str
    memory_bytes: int
    kind: str = COMPUTE
    flops: float = 1e11
    bandwidth: float = 2e10
    overhead: float = 1e-6

    def __post_init__(self) -> None:
        if not self.name:
            raise PartitionError("a device has an empty name")
        if self.kind not in (COMPUTE, MEMORY):
            raise PartitionError(f"device {self.name!r} has the kind {self.kind!r}", hint='use "compute" or "memory"')
        if self.memory_bytes < 0:
            raise PartitionError(f"device {self.name!r} has {self.memory_bytes} bytes of memory")
        if not (self.flops > 0 and self.bandwidth > 0 and self.overhead >= 0):
            raise PartitionError(f"device {self.name!r}: flops and bandwidth must be positive, overhead at least 0")


@dataclass(frozen=True)
class Link:
    """The connection from one device to another, in both directions unless there is a link back.

    Attributes:
        source, target: names of devices.
        bytes_per_second: the transfer rate.
        latency: seconds that each transfer costs besides.
    """

    source: str
    target: str
    bytes_per_second: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not self.bytes_per_second > 0 or self.latency < 0:
            raise PartitionError(
                f"link {self.source} to {self.target}: the rate must be positive, the latency at least 0"
            )

    def seconds(self, nbytes: int) -> float:
        """The duration of one transfer."""
        return self.latency + nbytes / self.bytes_per_second


@dataclass(frozen=True)
class Topology:
    """Devices and their links. Devices without a link are connected by `transfer_rate` (bytes per second; by default
    transfers cost nothing) and `transfer_latency` (seconds).

    Raises:
        PartitionError: there is no device, two have one name, or a link names an unknown one.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    transfer_rate: float = math.inf
    transfer_latency: float = 0.0
    _by_pair: dict[tuple[str, str], Link] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if not names:
            raise PartitionError("there are no devices to partition for", hint="pass a list of partition.Device")
        for name in names:
            if names.count(name) > 1:
                raise PartitionError(f"two devices have the name {name!r}")
        if not self.transfer_rate > 0 or self.transfer_latency < 0:
            raise PartitionError("the transfer rate must be positive, the transfer latency at least 0")
        for link in self.links:
            for name in (link.source, link.target):
                if name not in names:
                    raise PartitionError(f"a link names the device {name!r}", hint=f"devices: {', '.join(names)}")
            self._by_pair[link.source, link.target] = link
        for link in self.links:
            back = Link(link.target, link.source, link.bytes_per_second, link.latency)
            self._by_pair.setdefault((link.target, link.source), back)

    def transfer_seconds(self, source: Device, target: Device, nbytes: int) -> float:
        """The duration of a transfer; 0 within a device, and for 0 bytes."""
        if source.name == target.name or nbytes == 0:
            return 0.0
        link = self._by_pair.get((source.name, target.name))
        if link is not None:
            return link.seconds(nbytes)
        return self.transfer_latency + nbytes / self.transfer_rate

    def named(self, name: str) -> Device:
        """The device of this name.

        Raises:
            PartitionError: there is none.
        """
        for device in self.devices:
            if device.name == name:
                return device
        names = ", ".join(device.name for device in self.devices)
        raise PartitionError(f"there is no device {name!r}", hint=f"devices: {names}")


def topology_of(devices: Topology | Sequence[Device]) -> Topology:
    """Devices as users pass them."""
    return devices if isinstance(devices, Topology) else Topology(tuple(devices))
