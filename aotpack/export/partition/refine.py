"""Moving blocks between stages while a plan gets better, and again from plans nearby."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from aotpack.export.partition.estimate import Assignment, Estimate

# How many plans are refined, and how many blocks may be visited for each.
STARTS = 4
_VISITS = 300_000
# How many plans near the best one are refined besides, as far as the visits suffice.
_KICKS = 200


def improve(estimate: Estimate, assignment: Assignment) -> Assignment:
    """The best plan that is found by moves from a plan that fits. It fits too. The same in each build."""
    search = _Search(estimate)
    best = search.descend(list(assignment))
    cost = estimate.cost(best)
    draw = random.Random(0)
    for _ in range(_KICKS):
        if search.visits <= 0:
            break
        near = search.kicked(best, draw)
        if near is None:
            continue
        found = search.descend(near)
        if (reached := estimate.cost(found)) < cost:
            best, cost = found, reached
    return tuple(best)


class _Search:
    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self._devices = range(len(estimate.limits))
        self.visits = _VISITS

    def descend(self, plan: list[int]) -> list[int]:
        """The plan after moves that make it better, one by one."""
        cost = self._estimate.cost(plan)
        changed = True
        while changed and self.visits > 0:
            changed = False
            for moved in self._moves(plan):
                found = self._estimate.cost(moved)
                self.visits -= self._estimate.count
                if found < cost and self._fits(moved, plan):
                    plan, cost, changed = moved, found, True
                    break
                if self.visits <= 0:
                    break
        return plan

    def kicked(self, plan: Sequence[int], draw: random.Random) -> list[int] | None:
        """The plan after a few moves by lot; None where it does not fit, or cannot run."""
        moved = list(plan)
        for _ in range(draw.randint(1, 3)):
            block = draw.randrange(len(moved))
            group = draw.choice(self._groups(moved, block))
            device = draw.choice(self._devices)
            for member in group:
                moved[member] = device
        self.visits -= 2 * self._estimate.count
        if self._estimate.cost(moved) == float("inf") or not self._estimate.fits(moved, self._devices):
            return None
        return moved

    def _fits(self, moved: Sequence[int], plan: Sequence[int]) -> bool:
        changed = {device for pair in zip(moved, plan, strict=True) if pair[0] != pair[1] for device in pair}
        self.visits -= self._estimate.count
        return self._estimate.fits(moved, sorted(changed))

    def _moves(self, plan: list[int]) -> Iterator[list[int]]:
        """A block, alone or with what comes before or after it in its stage, to another device; two devices swapped."""
        for block in range(self._estimate.count):
            for group in self._groups(plan, block):
                for device in self._targets(plan, group):
                    moved = list(plan)
                    for member in group:
                        moved[member] = device
                    yield moved
        for one in self._devices:
            for other in range(one):
                swap = {one: other, other: one}
                yield [swap.get(device, device) for device in plan]

    def _targets(self, plan: list[int], group: Sequence[int]) -> list[int]:
        """The devices of neighbors, and those that have nothing yet; not the group's own."""
        graph = self._estimate.graph
        near = {plan[other] for block in group for other in (*graph.before[block], *graph.after[block])}
        free = set(self._devices).difference(plan)
        return sorted((near | free) - {plan[group[0]]})

    def _groups(self, plan: Sequence[int], block: int) -> list[list[int]]:
        graph = self._estimate.graph
        groups = [[block]]
        for neighbors in (graph.before, graph.after):
            group, pending = {block}, [block]
            while pending:
                for other in neighbors[pending.pop()]:
                    if other not in group and plan[other] == plan[block]:
                        group.add(other)
                        pending.append(other)
            self.visits -= len(group)
            if len(group) > 1:
                groups.append(sorted(group))
        return groups
