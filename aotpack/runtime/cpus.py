"""Groups of CPUs: what this process may use, NUMA nodes, and how both are divided."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

CpuGroup = str | Iterable[int]
"""CPUs by number, or a list as Linux has it: "0-3,8"."""

_MOST = 1 << 16
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


def parse_cpus(group: CpuGroup) -> tuple[int, ...]:
    """The CPUs of a group, ascending, each once.

    Raises:
        ValueError: the group is empty, or is not a list of CPUs.
    """
    if not isinstance(group, str):
        found = {int(cpu) for cpu in group}
    else:
        found = set()
        for part in group.strip().split(","):
            match = _RANGE.fullmatch(part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
            if last < first or last >= _MOST:
                raise ValueError(f'a group of CPUs must be a list such as "0-3,8"; got {group!r}')
            found.update(range(first, last + 1))
    if not found or min(found) < 0:
        raise ValueError(f"a group of CPUs must have at least one CPU, and none below 0; got {group!r}")
    return tuple(sorted(found))


def process_cpus() -> tuple[int, ...]:
    """The CPUs of the calling thread: its affinity, which its control group limits."""
    return tuple(sorted(os.sched_getaffinity(0)))


def numa_nodes(root: str | os.PathLike[str] = "/sys/devices/system/node") -> list[tuple[int, ...]]:
    """The CPUs of each NUMA node that this process may use, in the order of the nodes. Nodes without such CPUs are left
    out. Where the system does not list nodes, all CPUs are one.
    """
    usable = set(process_cpus())
    folders = sorted(Path(root).glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    texts = [(folder / "cpulist").read_text().strip() for folder in folders if (folder / "cpulist").is_file()]
    nodes = [tuple(cpu for cpu in parse_cpus(text) if cpu in usable) for text in texts if text]
    return [node for node in nodes if node] or [tuple(sorted(usable))]


def split_cpus(cpus: Iterable[int], shares: Iterable[float]) -> list[tuple[int, ...]]:
    """Divides CPUs into groups of neighbours in proportion to `shares`, with at least one CPU each. If there are fewer
    CPUs than groups, groups share them.

    Raises:
        ValueError: there are no CPUs, or a share is negative.
    """
    given, parts = tuple(cpus), list(shares)
    if not given or any(share < 0 for share in parts):
        raise ValueError("there must be at least one CPU, and no share may be negative")
    count, groups = len(given), len(parts)
    if count < groups:
        return [(given[i * count // groups],) for i in range(groups)]
    sizes = [1] * groups
    total = sum(parts) or 1.0
    for _ in range(count - groups):
        # To the group that is furthest behind its share.
        behind = max(range(groups), key=lambda i: parts[i] / total * count - sizes[i])
        sizes[behind] += 1
    starts = [sum(sizes[:i]) for i in range(groups)]
    return [given[start : start + size] for start, size in zip(starts, sizes, strict=True)]
