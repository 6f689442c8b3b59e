"""What a partitioning is: stages in order, what they hold and hand to each other, and how long a call takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aotpack.export.ir.program import Program
from aotpack.export.partition.devices import Device, Topology
from aotpack.export.partition.memory import StageBytes


@dataclass(frozen=True)
class NodeInfo:
    """A node that computes.

    Attributes:
        name, operator: of the node.
        module: path of the innermost module of the model that contains it; "" for the top.
        stage: the index of its stage.
        weights, inputs, outputs: bytes of the constants and values that it reads, and of what it returns.
        seconds: its latency on the device of its stage.
    """

    name: str
    operator: str
    module: str
    stage: int
    weights: int
    inputs: int
    outputs: int
    seconds: float

    @property
    def total(self) -> int:
        """All bytes of the node."""
        return self.weights + self.inputs + self.outputs


@dataclass(frozen=True)
class Stage:
    """Nodes that run on one device, one after the other.

    Attributes:
        index: its place in the order in which stages run.
        device: where it runs.
        nodes: names of its nodes, in order.
        weights: the constants that it reads: attribute of the program → names in the source model.
        inputs: names of nodes: inputs of the entry and results of earlier stages.
        outputs: names of nodes that later stages read or the entry returns.
        bytes: its memory.
        seconds: its latency, without transfers.
    """

    index: int
    device: Device
    nodes: tuple[str, ...]
    weights: Mapping[str, tuple[str, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: StageBytes
    seconds: float


@dataclass(frozen=True)
class Transfer:
    """What one stage hands to another: names of nodes, their bytes, and how long it takes."""

    source: int
    target: int
    values: tuple[str, ...]
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Partitioning:
    """A program divided into stages.

    Attributes:
        program: what was divided.
        topology: the devices, used or not.
        mode: how it was divided.
        stages: in the order in which they run.
        nodes: what is known of each assigned node, by the name of the node.
        transfers: between stages.
        device_bytes: the memory that each device in use needs, by its name.
        critical_path: the stages that determine the latency of a call, in order.
        seconds: the latency of a call: of the critical path, with its transfers. Stages that do not need each other run
            at the same time.
        replicas: devices of further copies of all stages, a device for each stage (`saturate_host`).
    """

    program: Program = field(repr=False)
    topology: Topology
    mode: str
    stages: tuple[Stage, ...]
    nodes: Mapping[str, NodeInfo] = field(repr=False)
    transfers: tuple[Transfer, ...]
    device_bytes: Mapping[str, int]
    critical_path: tuple[int, ...]
    seconds: float
    replicas: tuple[tuple[Device, ...], ...] = ()
    _remake: Callable[[Mapping[str, str]], Partitioning] | None = field(default=None, repr=False, compare=False)

    @property
    def slowest_stage(self) -> float:
        """Seconds between calls of a pipeline that runs all stages at the same time: the longest latency of a stage
        with the transfers of its inputs.
        """
        received = [0.0] * len(self.stages)
        for transfer in self.transfers:
            received[transfer.target] += transfer.seconds
        return max((stage.seconds + received[stage.index] for stage in self.stages), default=0.0)

    @property
    def transferred_bytes(self) -> int:
        """Bytes that stages hand to stages on other devices in a call."""
        return sum(
            transfer.nbytes
            for transfer in self.transfers
            if self.stages[transfer.source].device != self.stages[transfer.target].device
        )

    def stage_of(self, node: str) -> Stage:
        """The stage of a node.

        Raises:
            KeyError: no computing node has this name.
        """
        return self.stages[self.nodes[node].stage]

    def moved(self, nodes: Mapping[str, str]) -> Partitioning:
        """The partitioning with nodes on other devices: name of a node or path of a module → name of a device.

        Raises:
            PartitionError: as `partition` in the mode "mapping".
        """
        assert self._remake is not None
        return self._remake(nodes)

    def to_text(self) -> str:
        """A table for people."""
        lines = [
            f"{self.program.signature.name}: {len(self.stages)} stages, mode {self.mode}, "
            f"{self.seconds * 1e3:.4g} ms a call, slowest stage {self.slowest_stage * 1e3:.4g} ms"
        ]
        for stage in self.stages:
            lines.append(
                f"  stage {stage.index + 1} on {stage.device.name}: {len(stage.nodes)} nodes, "
                f"{stage.bytes.total} bytes ({stage.bytes.weights} of weights), {stage.seconds * 1e3:.4g} ms"
            )
        for transfer in self.transfers:
            lines.append(
                f"  stage {transfer.source + 1} to stage {transfer.target + 1}: {transfer.nbytes} bytes "
                f"({', '.join(transfer.values)})"
            )
        for number, devices in enumerate(self.replicas, start=1):
            lines.append(f"  replica {number} on {', '.join(device.name for device in devices)}")
        return "\n".join(lines)
