"""Mode "cost-aware" against the best of all plans, and its searches against the exhaustive one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
import torch.fx

from aotpack.errors import DeviceMemoryError
from aotpack.export import Device, Topology, partition
from aotpack.export.partition import cost_aware
from aotpack.export.partition.costs import Costs
from aotpack.export.partition.estimate import Estimate
from aotpack.export.partition.graph import WorkGraph
from aotpack.export.partition.plan import Problem
from aotpack.export.partition.sizes import Sizes
from tests.export.partition.programs import ITEM, Made, held_bytes, program_of

RATE = 1000.0  # bytes per second


def random_nodes(seed: int, count: int) -> tuple[list[Made], list[float]]:
    rng = random.Random(seed)
    nodes = []
    for index in range(count):
        reads = {rng.randrange(max(-1, index - 4), index) for _ in range(rng.randint(1, 2))}
        weight = index if rng.random() < 0.5 else None
        nodes.append(Made(tuple(sorted(reads)), rng.randint(1, 60), weight, rng.randint(1, 200) if weight else 0))
    return nodes, [rng.choice([0.1, 0.5, 1.0, 3.0]) for _ in nodes]


def cost_of(
    nodes: Sequence[Made], seconds: Sequence[float], plan: Sequence[int], speeds: Sequence[float], objective: str
) -> float:
    """The cost of a plan, computed in another way; infinite where its stages need each other."""
    devices = set(plan)
    for order in itertools.permutations(devices):
        place = {device: index for index, device in enumerate(order)}
        if all(place[plan[o]] <= place[plan[i]] for i, node in enumerate(nodes) for o in node.reads if o >= 0):
            break
    else:
        return math.inf
    ends: dict[int, float] = {}
    worst = 0.0
    for device in order:
        load = sum(seconds[i] / speeds[device] for i in range(len(nodes)) if plan[i] == device)
        arrivals = []
        for source in devices - {device}:
            read = {
                o
                for i, node in enumerate(nodes)
                if plan[i] == device
                for o in node.reads
                if o >= 0 and plan[o] == source
            }
            if read:
                arrivals.append((source, sum(nodes[o].size for o in read) * ITEM / RATE))
        ends[device] = max((ends[source] + time for source, time in arrivals), default=0.0) + load
        worst = max(worst, load + sum(time for _, time in arrivals))
    return max(ends.values()) if objective == "latency" else worst


def best_of_all(
    nodes: Sequence[Made], seconds: Sequence[float], budgets: Sequence[int], speeds: Sequence[float], objective: str
) -> float:
    best = math.inf
    for plan in itertools.product(range(len(budgets)), repeat=len(nodes)):
        cost = cost_of(nodes, seconds, plan, speeds, objective)
        if cost < best and all(
            held_bytes(nodes, [i for i, d in enumerate(plan) if d == device]) <= budget
            for device, budget in enumerate(budgets)
            if device in plan
        ):
            best = cost
    return best


def problem_of(
    nodes: Sequence[Made], seconds: Sequence[float], budgets: Sequence[int], speeds: Sequence[float]
) -> Problem:
    devices = tuple(Device(f"d{i}", budget) for i, budget in enumerate(budgets))

    def latency(node: torch.fx.Node, device: Device) -> float:
        return seconds[int(node.name[1:])] / speeds[int(device.name[1:])]

    program = program_of(nodes)
    sizes = Sizes(program)
    topology = Topology(devices, transfer_rate=RATE)
    return Problem(program, topology, sizes, WorkGraph(program, sizes), Costs(sizes, latency))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize(("count", "devices"), [(6, 3), (9, 2), (12, 2)])
def test_within_a_tenth_of_the_best(count: int, devices: int, objective: str) -> None:
    for seed in range(4 if count == 12 else 8):
        nodes, seconds = random_nodes(seed, count)
        whole = held_bytes(nodes, range(count))
        budgets = [int(whole * share) for share in (0.75, 0.6, 1.0)[:devices]]
        speeds = [1.0, 2.0, 0.5][:devices]
        best = best_of_all(nodes, seconds, budgets, speeds, objective)
        problem = problem_of(nodes, seconds, budgets, speeds)
        arguments = (problem.program, problem.topology, "cost-aware")
        options = {"objective": objective, "latencies": problem.costs.seconds, "passes": False}
        if best == math.inf:
            with pytest.raises(DeviceMemoryError):
                partition(*arguments, **options)  # type: ignore[arg-type]
            continue
        found = partition(*arguments, **options)  # type: ignore[arg-type]
        reached = found.seconds if objective == "latency" else found.slowest_stage
        assert reached <= 1.1 * best, (seed, reached, best)
        assert reached >= best - 1e-9, (seed, reached, best)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_search_for_larger_programs_is_near_the_exhaustive_one(objective: str) -> None:
    """On programs that both can search: rarely more than a tenth worse, and it finds a plan wherever there is one."""
    ratios = []
    for seed in range(40):
        nodes, seconds = random_nodes(seed, 9)
        whole = held_bytes(nodes, range(9))
        problem = problem_of(nodes, seconds, [int(whole * 0.8), int(whole * 0.7), whole // 2], [1.0, 2.0, 0.5])
        estimate = Estimate(problem, objective)
        best = cost_aware.exhaustive.best(estimate)
        found = cost_aware._search(estimate)
        if best is not None:
            assert found is not None
            assert estimate.fits(found, range(3))
            ratios.append(estimate.cost(found) / estimate.cost(best))
    assert len(ratios) >= 30
    assert min(ratios) >= 1 - 1e-9
    assert sum(ratios) / len(ratios) <= 1.05
    assert sum(ratio > 1.1 for ratio in ratios) <= 3
