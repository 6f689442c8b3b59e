"""Mode "cost-aware": the plan with the lowest latency of a call, or of the slowest stage of a pipeline.

Programs of few blocks are searched exhaustively. For others, programs are cut into segments by dynamic programming
(segments.py), and blocks are moved while that helps (refine.py).
"""

from __future__ import annotations

from aotpack.errors import DeviceMemoryError
from aotpack.export.partition import exhaustive, refine, segments
from aotpack.export.partition.estimate import LATENCY, Assignment, Estimate
from aotpack.export.partition.memory import stage_bytes
from aotpack.export.partition.plan import Plan, Problem, refuse_large_blocks


def plan_by_cost(problem: Problem, objective: str = LATENCY) -> Plan:
    """The plan.

    Raises:
        NodeTooLargeError: a node fits on no device.
        DeviceMemoryError: no plan was found that fits on the devices.
    """
    blocks = range(len(problem.graph.blocks))
    refuse_large_blocks(problem, blocks, problem.devices)
    estimate = Estimate(problem, objective)
    best = exhaustive.best(estimate) if exhaustive.is_small(estimate) else _search(estimate)
    if best is None:
        whole = stage_bytes(problem.graph, blocks).total
        available = sum(device.memory_bytes for device in problem.devices)
        raise DeviceMemoryError(
            f"found no stages that fit on the {len(problem.devices)} devices with {available} bytes in total: on one "
            f"device the program would need {whole} bytes",
            nbytes=whole,
            available=available,
            hint="add devices, or devices with more memory",
        )
    return Plan.by_device([problem.devices[device] for device in best])


def _search(estimate: Estimate) -> Assignment | None:
    """The best plan that is found by cutting in several orders and refining."""
    candidates = [found for order in estimate.orders() for found in segments.cut(estimate, order)]
    used = range(len(estimate.limits))
    feasible = sorted((estimate.cost(found), found) for found in set(candidates) if estimate.fits(found, used))
    refined = [refine.improve(estimate, found) for _, found in feasible[: refine.STARTS]]
    return min(refined, key=estimate.cost, default=None)
