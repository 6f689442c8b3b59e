"""Cutting an order of blocks into segments, one for each device, by dynamic programming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, permutations

import torch

from aotpack.export.partition.estimate import LATENCY, Assignment, Estimate
from aotpack.export.partition.memory import StageMemory

# How many blocks may be added up to learn the memory of all segments, and how many orders of devices are tried.
_VISITS = 120_000
_MOST_ORDERS = 24


def cut(estimate: Estimate, order: Sequence[int]) -> Iterator[Assignment]:
    """Plans that fit on the devices: for each order of devices, the best for segments between the places considered."""
    crossing = _crossing(estimate, order)
    places = _places(estimate, order, crossing)
    memory = _memory(estimate, order, places)
    loads = _loads(estimate, order, places)
    seen: set[tuple[object, ...]] = set()
    by_memory = sorted(range(len(estimate.limits)), key=lambda device: -estimate.limits[device])
    for devices in islice(permutations(by_memory), _MOST_ORDERS):
        alike = tuple(estimate.problem.devices[d] for d in devices)
        looks = tuple((d.memory_bytes, d.flops, d.bandwidth, d.overhead) for d in alike)
        if not estimate.problem.topology.links and looks in seen:
            continue
        seen.add(looks)
        found = _best_cuts(estimate, devices, memory, loads, [crossing[place] for place in places])
        if found is not None:
            assignment = [0] * estimate.count
            for device, start, end in found:
                for block in order[places[start] : places[end]]:
                    assignment[block] = device
            yield tuple(assignment)


def _best_cuts(
    estimate: Estimate,
    devices: Sequence[int],
    memory: torch.Tensor,
    loads: Sequence[torch.Tensor],
    crossing: Sequence[int],
) -> list[tuple[int, int, int]] | None:
    """(device, first place, last place) of each segment."""
    count = len(crossing)
    best = torch.full((count,), torch.inf, dtype=torch.float64)
    best[0] = 0.0
    origins: list[torch.Tensor] = []
    previous: int | None = None
    for device in devices:
        received = torch.tensor(
            [0.0 if previous is None else estimate.transfer(previous, device, n) for n in crossing], dtype=torch.float64
        )
        received[0] = 0.0
        segment = loads[device] + received[:, None]
        reached = best[:, None] + segment if estimate.objective == LATENCY else torch.maximum(best[:, None], segment)
        reached = torch.where(memory <= estimate.limits[device], reached, torch.inf)
        # Without the device.
        reached.diagonal().copy_(best)
        best, origin = reached.min(0)
        origins.append(origin)
        previous = device
    if not torch.isfinite(best[-1]):
        return None
    found: list[tuple[int, int, int]] = []
    end = count - 1
    for device, origin in zip(reversed(devices), reversed(origins), strict=True):
        start = int(origin[end])
        if start != end:
            found.append((device, start, end))
        end = start
    return found


def _crossing(estimate: Estimate, order: Sequence[int]) -> list[int]:
    """Bytes that blocks before a place hand to blocks behind it, for each place."""
    position = {block: index for index, block in enumerate(order)}
    change = [0] * (len(order) + 1)
    for producer, readers, nbytes in estimate.handed:
        last = max(position[reader] for reader in readers)
        change[position[producer] + 1] += nbytes
        change[last + 1] -= nbytes
    crossing, current = [], 0
    for delta in change:
        current += delta
        crossing.append(current)
    return crossing


def _places(estimate: Estimate, order: Sequence[int], crossing: Sequence[int]) -> list[int]:
    """Where cuts are considered: everywhere, or in a long program where the least is handed over, evenly spread."""
    count = len(order)
    most = max(8, _VISITS // max(1, count))
    if most > count:
        return list(range(count + 1))
    bounds = [round(count * i / most) for i in range(most + 1)]
    spans = [range(max(1, low), high) for low, high in pairwise(bounds)]
    inner = [min(span, key=lambda place: (crossing[place], place)) for span in spans if span]
    return sorted({0, *inner, count})


def _memory(estimate: Estimate, order: Sequence[int], places: Sequence[int]) -> torch.Tensor:
    """The memory of the segment between each two places, by order of the places."""
    found = torch.full((len(places), len(places)), torch.inf, dtype=torch.float64)
    most = max(estimate.limits, default=0)
    for first, start in enumerate(places):
        memory = StageMemory(estimate.graph)
        end = start
        for last in range(first + 1, len(places)):
            # Blocks run in the order of the program.
            for block in order[end : places[last]]:
                memory.add(block)
            end = places[last]
            found[first, last] = memory.total
            if memory.total > most:
                break
    return found


def _loads(estimate: Estimate, order: Sequence[int], places: Sequence[int]) -> list[torch.Tensor]:
    """By device, the seconds of the segment between each two places."""
    found = []
    for device in range(len(estimate.limits)):
        seconds = torch.tensor([0.0, *(estimate.seconds[block][device] for block in order)], dtype=torch.float64)
        until = seconds.cumsum(0)[torch.tensor(places)]
        load = until[None, :] - until[:, None]
        found.append(torch.where(load >= -1e-12, load.clamp_min(0), torch.inf).triu())
    return found
