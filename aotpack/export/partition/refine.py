"""Moving single blocks between stages while a plan gets better."""

from __future__ import annotations

from aotpack.export.partition.estimate import Assignment, Estimate

# How many plans are refined, and how many blocks may be visited for each.
STARTS = 4
_VISITS = 300_000


def improve(estimate: Estimate, assignment: Assignment) -> Assignment:
    """The plan after moves that make it better, one by one. It fits if the given one does."""
    current, cost = list(assignment), estimate.cost(assignment)
    budget = _VISITS
    changed = True
    while changed and budget > 0:
        changed = False
        for block in range(estimate.count):
            for device in _targets(estimate, current, block):
                budget -= 2 * estimate.count
                own = current[block]
                current[block] = device
                better = estimate.cost(current)
                if better < cost and estimate.fits(current, (device, own)):
                    cost, changed = better, True
                else:
                    current[block] = own
            if budget <= 0:
                break
    return tuple(current)


def _targets(estimate: Estimate, assignment: list[int], block: int) -> list[int]:
    """The devices of neighbors, and those that have nothing yet; not the block's own."""
    near = {assignment[other] for other in (*estimate.graph.before[block], *estimate.graph.after[block])}
    free = set(range(len(estimate.limits))) - set(assignment)
    return sorted((near | free) - {assignment[block]})
