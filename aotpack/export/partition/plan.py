"""An assignment of blocks to devices: checked, evaluated, and described as a `Partitioning`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aotpack.errors import DeviceMemoryError, NodeTooLargeError, StageCycleError
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import layer_of, operator_name
from aotpack.export.partition.costs import Costs
from aotpack.export.partition.devices import Device, Topology
from aotpack.export.partition.graph import ENTRY, WorkGraph, stage_order
from aotpack.export.partition.memory import device_bytes, stage_bytes
from aotpack.export.partition.result import NodeInfo, Partitioning, Stage, Transfer
from aotpack.export.partition.sizes import Sizes


@dataclass(frozen=True)
class Problem:
    """A program to divide, with all that modes need to know of it."""

    program: Program
    topology: Topology
    sizes: Sizes
    graph: WorkGraph
    costs: Costs

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.topology.devices

    def seconds(self, block: int, device: Device) -> float:
        """The latency of a block."""
        return sum(self.costs.seconds(node, device) for node in self.graph.blocks[block].nodes)


@dataclass(frozen=True)
class Plan:
    """A stage for each block, by number, and a device for each stage."""

    stage_of: tuple[int, ...]
    devices: Mapping[int, Device]

    @staticmethod
    def by_device(devices: Sequence[Device]) -> Plan:
        """One stage for each device in use; `devices` has one for each block."""
        numbers: dict[str, int] = {}
        stages = tuple(numbers.setdefault(device.name, len(numbers)) for device in devices)
        return Plan(stages, {numbers[device.name]: device for device in devices})


def refuse_large_blocks(problem: Problem, blocks: Iterable[int], devices: Sequence[Device]) -> None:
    """Raises NodeTooLargeError where a node does not fit on any of the devices, even alone."""
    largest = max(devices, key=lambda device: device.memory_bytes)
    for index in blocks:
        block = problem.graph.blocks[index]
        needed = stage_bytes(problem.graph, [index])
        if needed.total <= largest.memory_bytes:
            continue
        others = len(block.nodes) - 1
        along = f", with {others} other nodes that must be in its stage," if others else ""
        raise NodeTooLargeError(
            f"the node {block.name!r} ({operator_name(block.nodes[0])}){along} needs {needed.total} bytes ("
            f"{needed.weights} of weights, {needed.values} of values), but the largest device, {largest.name!r}, has "
            f"{largest.memory_bytes}",
            node=block.name,
            nbytes=needed.total,
            available=largest.memory_bytes,
            hint="use a device with more memory, or smaller upper bounds of dynamic dims",
        )


def refuse_overfull(problem: Problem, plan: Plan) -> None:
    """Raises DeviceMemoryError where stages do not fit on their device."""
    for device, stages in stages_by_device(plan).items():
        needed = device_bytes(problem.graph, stages)
        if needed > device.memory_bytes:
            raise DeviceMemoryError(
                f"the stages on device {device.name!r} need {needed} bytes, but it has {device.memory_bytes}",
                nbytes=needed,
                available=device.memory_bytes,
            )


def stages_by_device(plan: Plan) -> dict[Device, list[list[int]]]:
    """The blocks of each stage, by device."""
    blocks: dict[int, list[int]] = {}
    for index, stage in enumerate(plan.stage_of):
        blocks.setdefault(stage, []).append(index)
    found: dict[Device, list[list[int]]] = {}
    for stage, members in blocks.items():
        found.setdefault(plan.devices[stage], []).append(members)
    return found


def describe(
    problem: Problem, plan: Plan, mode: str, remake: Callable[[Mapping[str, str]], Partitioning]
) -> Partitioning:
    """The partitioning of a plan.

    Raises:
        StageCycleError: stages need results of each other.
        DeviceMemoryError: stages do not fit on their device.
    """
    order, cyclic = stage_order(problem.graph, plan.stage_of)
    if cyclic:
        _refuse_cycle(problem, plan, set(cyclic))
    refuse_overfull(problem, plan)
    place = {stage: index for index, stage in enumerate(order)}
    blocks: list[list[int]] = [[] for _ in order]
    for index, stage in enumerate(plan.stage_of):
        blocks[place[stage]].append(index)
    devices = [plan.devices[stage] for stage in order]
    nodes = _nodes(problem, [place[stage] for stage in plan.stage_of], devices)
    stages = tuple(
        _stage(problem, index, device, members, nodes)
        for index, (device, members) in enumerate(zip(devices, blocks, strict=True))
    )
    transfers = _transfers(problem, [place[stage] for stage in plan.stage_of], devices)
    path, seconds = critical_path([stage.seconds for stage in stages], [device.name for device in devices], transfers)
    held = {device.name: device_bytes(problem.graph, found) for device, found in stages_by_device(plan).items()}
    return Partitioning(
        problem.program, problem.topology, mode, stages, nodes, transfers, held, path, seconds, _remake=remake
    )


def critical_path(
    stages: Sequence[float], devices: Sequence[str], transfers: Sequence[Transfer]
) -> tuple[tuple[int, ...], float]:
    """The stages that determine when the last one ends, and when that is. Stages on one device run in order.

    Args:
        stages: the seconds of each.
        devices: the name of the device of each.
        transfers: between them.
    """
    ends: list[float] = []
    causes: list[int | None] = []
    last: dict[str, int] = {}
    incoming: list[list[Transfer]] = [[] for _ in stages]
    for transfer in transfers:
        incoming[transfer.target].append(transfer)
    for index, seconds in enumerate(stages):
        start, cause = 0.0, None
        previous = last.get(devices[index])
        waits = [(ends[transfer.source] + transfer.seconds, transfer.source) for transfer in incoming[index]]
        if previous is not None:
            waits.append((ends[previous], previous))
        if waits:
            start, cause = max(waits)
        ends.append(start + seconds)
        causes.append(cause)
        last[devices[index]] = index
    if not ends:
        return (), 0.0
    at: int | None = max(range(len(ends)), key=ends.__getitem__)
    total, path = ends[at or 0], []
    while at is not None:
        path.append(at)
        at = causes[at]
    return tuple(reversed(path)), total


def _nodes(problem: Problem, stage_of: Sequence[int], devices: Sequence[Device]) -> dict[str, NodeInfo]:
    found: dict[str, NodeInfo] = {}
    for index, block in enumerate(problem.graph.blocks):
        for node in block.nodes:
            read = [argument for argument in node.all_input_nodes if not problem.graph.roles.is_number(argument)]
            weights = [argument for argument in read if argument.op == "get_attr"]
            found[node.name] = NodeInfo(
                node.name,
                operator_name(node),
                layer_of(node),
                stage_of[index],
                sum(problem.sizes.nbytes(value.meta.get("val")) for value in weights),
                sum(problem.sizes.nbytes(value.meta.get("val")) for value in read if value.op != "get_attr"),
                problem.sizes.nbytes(node.meta.get("val")),
                problem.costs.seconds(node, devices[stage_of[index]]),
            )
    return found


def _stage(
    problem: Problem, index: int, device: Device, members: Sequence[int], nodes: Mapping[str, NodeInfo]
) -> Stage:
    graph, own = problem.graph, set(members)
    weights = dict.fromkeys(w for block in members for w in graph.blocks[block].weights)
    attributes = [attribute for weight in weights for attribute in graph.weights[weight].attributes]
    reads = dict.fromkeys(v for block in members for v in graph.blocks[block].reads)
    makes = [v for block in members for v in graph.blocks[block].makes]
    names = tuple(sorted((n for block in members for n in graph.blocks[block].nodes), key=graph.position.__getitem__))
    return Stage(
        index,
        device,
        tuple(node.name for node in names),
        {attribute: problem.program.constant_info(attribute).sources for attribute in attributes},
        tuple(graph.values[v].node.name for v in reads if graph.values[v].producer not in own),
        tuple(
            graph.values[v].node.name
            for v in makes
            if graph.values[v].is_result or not own.issuperset(graph.values[v].readers)
        ),
        stage_bytes(graph, members),
        sum(nodes[node.name].seconds for node in names),
    )


def _transfers(problem: Problem, stage_of: Sequence[int], devices: Sequence[Device]) -> tuple[Transfer, ...]:
    found: dict[tuple[int, int], list[int]] = {}
    for number, value in enumerate(problem.graph.values):
        if value.producer == ENTRY:
            continue
        source = stage_of[value.producer]
        for target in sorted({stage_of[reader] for reader in value.readers} - {source}):
            found.setdefault((source, target), []).append(number)
    transfers = []
    for (source, target), numbers in sorted(found.items()):
        values = [problem.graph.values[number] for number in numbers]
        nbytes = sum(value.nbytes for value in values)
        seconds = problem.topology.transfer_seconds(devices[source], devices[target], nbytes)
        transfers.append(Transfer(source, target, tuple(value.node.name for value in values), nbytes, seconds))
    return tuple(transfers)


def _refuse_cycle(problem: Problem, plan: Plan, stages: set[int]) -> None:
    """Raises StageCycleError with nodes on the way."""
    from networkx import DiGraph, find_cycle

    graph = DiGraph()
    for index, stage in enumerate(plan.stage_of):
        for other in problem.graph.before[index]:
            source = plan.stage_of[other]
            if source != stage and {source, stage} <= stages and not graph.has_edge(source, stage):
                graph.add_edge(source, stage, ends=(other, index))
    names: list[str] = []
    shown: list[str] = []
    for source, target in find_cycle(graph):
        for block, stage in zip(graph.edges[source, target]["ends"], (source, target), strict=True):
            name = problem.graph.blocks[block].name
            if not names or names[-1] != name:
                names.append(name)
                shown.append(f"{name} ({plan.devices[stage].name})")
    raise StageCycleError(
        f"stages need results of each other: {' → '.join(shown)}",
        nodes=tuple(names),
        hint="put nodes between two nodes of one stage on the device of that stage",
    )
