"""`partition`: divides a program into stages over logical devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from aotpack.errors import PartitionError
from aotpack.export.ir.program import Program
from aotpack.export.partition.cost_aware import plan_by_cost
from aotpack.export.partition.costs import Costs, Latencies
from aotpack.export.partition.devices import Device, Topology, topology_of
from aotpack.export.partition.estimate import LATENCY
from aotpack.export.partition.graph import WorkGraph
from aotpack.export.partition.mapping import Part, plan_by_mapping, plan_of_parts
from aotpack.export.partition.plan import Plan, Problem, describe
from aotpack.export.partition.replicas import replicas
from aotpack.export.partition.result import Partitioning
from aotpack.export.partition.size_based import plan_by_size
from aotpack.export.partition.sizes import Sizes
from aotpack.export.partition.sparse import plan_sparse
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.runner import run_passes

SIZE = "size"
SPARSE = "sparse-nn"
COST = "cost-aware"
MAPPING = "mapping"
GIVEN = "aot"
MODES = (SIZE, SPARSE, COST, MAPPING, GIVEN)


def partition(
    program: Program,
    devices: Topology | Sequence[Device],
    mode: str = SIZE,
    *,
    latencies: Latencies | None = None,
    objective: str = LATENCY,
    mapping: Mapping[str, str] | None = None,
    partitions: Sequence[Part | Sequence[str]] | None = None,
    saturate_host: bool = False,
    passes: bool = True,
) -> Partitioning:
    """Divides a program into stages, each of which runs on one logical device, one after the other.

    No device gets more bytes than its budget. Stages have no cycles: each needs results of earlier ones only.

    Args:
        program: a program without variants.
        devices: a list of devices, or a `Topology` with links between them.
        mode: how to divide:
            "size": nodes in order, each on the current device while it fits; devices with the most memory first.
            "sparse-nn": embedding tables and their bags on devices of the kind "memory", the rest on "compute" devices.
            "cost-aware": the lowest latency, by `objective`.
            "mapping": by `mapping`.
            "aot": `partitions`, made by another tool.
        latencies: seconds by the name of a node or operator (`aten.linear`), or a function of a node and a device that
            returns None where it knows none. By default, latencies are estimated from the devices' speeds.
        objective: of the mode "cost-aware": "latency" of a call, or "throughput" of a pipeline, which the slowest stage
            determines.
        mapping: names of nodes or paths of modules → names of devices.
        partitions: lists of names of nodes, one for each device in order, or `Part` objects that name their devices.
        saturate_host: also find devices for copies of all stages among those that are left over (`replicas`).
        passes: run the passes for all devices first, as a build does, so that stages have the nodes that are compiled.

    Raises:
        DeviceMemoryError: the devices are too few or too small.
        NodeTooLargeError: a node fits on no device.
        UnknownNodeError: `mapping` or `partitions` name nodes or modules that the program does not have.
        StageCycleError: stages of `mapping` or `partitions` need results of each other.
        PartitionError: anything else that is wrong with the arguments.
    """
    if mode not in MODES:
        raise PartitionError(f"unknown mode {mode!r}", hint=f"modes: {', '.join(MODES)}")
    for name, value, wanted in (("mapping", mapping, MAPPING), ("partitions", partitions, GIVEN)):
        if (value is not None) != (mode == wanted):
            raise PartitionError(f"`{name}` goes with the mode {wanted!r}, the mode is {mode!r}")
    if program.variants:
        raise PartitionError(
            f"{program.signature.name!r} has variants, which are divided one by one",
            hint="pass build_archive a function: partitioning=lambda program: partition(program, …, passes=False)",
        )
    topology = topology_of(devices)
    program = run_passes(program, COMMON) if passes else program
    sizes = Sizes(program)
    problem = Problem(program, topology, sizes, WorkGraph(program, sizes), Costs(sizes, latencies))
    if mode == SIZE:
        plan = plan_by_size(problem)
    elif mode == SPARSE:
        plan = plan_sparse(problem)
    elif mode == COST:
        plan = plan_by_cost(problem, objective)
    elif mode == MAPPING:
        plan = plan_by_mapping(problem, mapping or {})
    else:
        plan = plan_of_parts(problem, [_part(part) for part in partitions or ()])
    return _finished(problem, plan, mode, saturate_host=saturate_host)


def _finished(problem: Problem, plan: Plan, mode: str, *, saturate_host: bool) -> Partitioning:
    def moved(nodes: Mapping[str, str]) -> Partitioning:
        kept = {node.name: plan.devices[plan.stage_of[i]].name for node, i in problem.graph.block_of.items()}
        # A block moves as a whole; a module moves with all of its nodes.
        changed = plan_by_mapping(problem, nodes, default=kept)
        return _finished(problem, changed, MAPPING, saturate_host=saturate_host)

    found = describe(problem, plan, mode, moved)
    return dataclasses.replace(found, replicas=replicas(found)) if saturate_host else found


def _part(part: Part | Sequence[str]) -> Part:
    return part if isinstance(part, Part) else Part(tuple(part))
