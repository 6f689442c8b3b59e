"""The best of all plans, for programs of few blocks. All plans are evaluated at once, as tensors."""

from __future__ import annotations

from itertools import permutations

import torch

from aotpack.export.partition.estimate import LATENCY, Assignment, Estimate
from aotpack.export.partition.memory import stage_bytes

_MOST_BLOCKS = 12
_MOST_PLANS = 600_000


def is_small(estimate: Estimate) -> bool:
    """Whether there are few enough plans."""
    devices = len(estimate.limits)
    return estimate.count <= _MOST_BLOCKS and devices**estimate.count <= _MOST_PLANS


def best(estimate: Estimate) -> Assignment | None:
    """The best plan that fits; None where there is none."""
    devices, count = len(estimate.limits), estimate.count
    numbers = torch.arange(devices**count)
    plans = [numbers // devices**block % devices for block in range(count)]
    allowed = torch.ones(len(numbers), dtype=torch.bool)
    sizes = torch.tensor(
        [stage_bytes(estimate.graph, [b for b in range(count) if mask >> b & 1]).total for mask in range(1 << count)]
    )
    loads = []
    for device, limit in enumerate(estimate.limits):
        mask = torch.zeros_like(numbers)
        load = torch.zeros(len(numbers), dtype=torch.float64)
        for block, plan in enumerate(plans):
            chosen = plan == device
            mask |= chosen.long() << block
            load += chosen * estimate.seconds[block][device]
        allowed &= sizes[mask] <= limit
        loads.append(load)
    costs = _costs(estimate, plans, loads)
    costs[~allowed] = torch.inf
    index = int(costs.argmin())
    if not torch.isfinite(costs[index]):
        return None
    return tuple(int(plan[index]) for plan in plans)


def _costs(estimate: Estimate, plans: list[torch.Tensor], loads: list[torch.Tensor]) -> torch.Tensor:
    """The cost of each plan; infinite where stages need each other."""
    devices = range(len(loads))
    pairs = [(a, b) for a in devices for b in devices if a != b]
    needs = {pair: torch.zeros(len(loads[0]), dtype=torch.bool) for pair in pairs}
    moved = {pair: torch.zeros(len(loads[0]), dtype=torch.long) for pair in pairs}
    for source, target in pairs:
        for block, found in enumerate(estimate.graph.before):
            for other in found:
                needs[source, target] |= (plans[other] == source) & (plans[block] == target)
        for producer, readers, nbytes in estimate.handed:
            read = torch.zeros(len(loads[0]), dtype=torch.bool)
            for reader in readers:
                read |= plans[reader] == target
            moved[source, target] += ((plans[producer] == source) & read) * nbytes
    seconds = {pair: _seconds(estimate, *pair, moved[pair]) for pair in pairs}
    costs = torch.full((len(loads[0]),), torch.inf, dtype=torch.float64)
    for order in permutations(devices):
        place = {device: index for index, device in enumerate(order)}
        backward = torch.zeros(len(loads[0]), dtype=torch.bool)
        for source, target in pairs:
            if place[source] > place[target]:
                backward |= needs[source, target]
        ends: dict[int, torch.Tensor] = {}
        for target in order:
            if estimate.objective == LATENCY:
                start = torch.zeros_like(costs)
                for source, end in ends.items():
                    start = torch.where(
                        needs[source, target], torch.maximum(start, end + seconds[source, target]), start
                    )
            else:
                start = sum((seconds[source, target] for source in ends), torch.zeros_like(costs))
            ends[target] = start + loads[target]
        cost = torch.stack(list(ends.values())).amax(0)
        costs = torch.minimum(costs, torch.where(backward, torch.inf, cost))
    return costs


def _seconds(estimate: Estimate, source: int, target: int, nbytes: torch.Tensor) -> torch.Tensor:
    # A transfer is linear in its bytes, but for the latency that one of no bytes does not have.
    one, two = (estimate.transfer(source, target, n) for n in (1 << 30, 1 << 31))
    rate = (two - one) / (1 << 30)
    return torch.where(nbytes > 0, one - rate * (1 << 30) + nbytes * rate, 0.0)
