"""Modes "mapping" and "aot": devices by nodes or modules, and partitions that another tool has made."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotpack.errors import PartitionError, UnknownNodeError
from aotpack.export.ir.rewriter import layer_of
from aotpack.export.partition.devices import Device
from aotpack.export.partition.plan import Plan, Problem


@dataclass(frozen=True)
class Part:
    """A partition that another tool has made: names of nodes, and the name of their device ("" for the next one)."""

    nodes: tuple[str, ...]
    device: str = ""


def plan_by_mapping(problem: Problem, mapping: Mapping[str, str], default: Mapping[str, str] | None = None) -> Plan:
    """The plan of a mapping from names of nodes and paths of modules to names of devices.

    The name of a node counts more than the path of a module, and a longer path more than a shorter one; "" is the whole
    model. Nodes without a device go to that in `default`, by their names, or else to the device of what they read, or
    of what reads them.

    Raises:
        UnknownNodeError: the program has no such node or module.
        PartitionError: there is no such device, or nodes that belong to one stage are mapped to several.
    """
    names = {node.name: layer_of(node) for node in problem.graph.block_of}
    paths = {"", *(prefix for path in names.values() for prefix in _prefixes(path))}
    _refuse_unknown([key for key in mapping if key not in names and key not in paths], [*names, *paths])
    devices = {key: problem.topology.named(name) for key, name in mapping.items()}
    found: list[Device | None] = []
    for block in problem.graph.blocks:
        chosen = {node.name: _device(node.name, layer_of(node), devices) for node in block.nodes}
        # What is mapped by its own name decides for what has to be in its stage.
        explicit = {name: devices[name] for name in chosen if name in devices}
        wanted = {name: device for name, device in (explicit or chosen).items() if device is not None}
        device = _one(wanted, by_name=bool(explicit))
        if device is None and default is not None and block.name in default:
            device = problem.topology.named(default[block.name])
        found.append(device)
    return Plan.by_device(_complete(problem, found))


def plan_of_parts(problem: Problem, parts: Sequence[Part]) -> Plan:
    """The plan of partitions that were made by another tool: every computing node is in one of them.

    Raises:
        UnknownNodeError: the program has no such node.
        PartitionError: a node is in several partitions or in none, nodes that belong to one stage are in several, there
            is no such device, or there are fewer devices than partitions.
    """
    names = {node.name: index for node, index in problem.graph.block_of.items()}
    free = {node.name for node in problem.program.graph.nodes if node.name not in names}
    listed = [name for part in parts for name in part.nodes]
    _refuse_unknown([name for name in listed if name not in names and name not in free], list(names))
    part_of: dict[str, int] = {}
    for number, part in enumerate(parts):
        for name in part.nodes:
            if name in names and part_of.setdefault(name, number) != number:
                raise PartitionError(f"the node {name!r} is in the partitions {part_of[name]} and {number}")
    missing = [name for name in names if name not in part_of]
    if missing:
        raise PartitionError(f"{len(missing)} nodes are in no partition: {_shown(missing)}")
    stage_of = []
    for block in problem.graph.blocks:
        first, *others = (node.name for node in block.nodes)
        for other in others:
            if part_of[other] != part_of[first]:
                raise PartitionError(
                    f"the nodes {first!r} and {other!r} must be in one partition, but are in {part_of[first]} and "
                    f"{part_of[other]}"
                )
        stage_of.append(part_of[first])
    return Plan(tuple(stage_of), _devices_of_parts(problem, parts))


def _devices_of_parts(problem: Problem, parts: Sequence[Part]) -> dict[int, Device]:
    named = {part.device for part in parts if part.device}
    unused = iter([device for device in problem.devices if device.name not in named])
    found: dict[int, Device] = {}
    for number, part in enumerate(parts):
        device = problem.topology.named(part.device) if part.device else next(unused, None)
        if device is None:
            raise PartitionError(
                f"{len(parts)} partitions, but {len(problem.devices)} devices",
                hint="add devices, or name a device in each Part",
            )
        found[number] = device
    return found


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _device(name: str, path: str, devices: Mapping[str, Device]) -> Device | None:
    if name in devices:
        return devices[name]
    for prefix in reversed(_prefixes(path)):
        if prefix in devices:
            return devices[prefix]
    return devices.get("")


def _one(wanted: Mapping[str, Device], *, by_name: bool) -> Device | None:
    """The device of a block. Modules meet in blocks, of which the first decides; names may not."""
    found = list(wanted.items())
    for name, device in found[1:]:
        if by_name and device != found[0][1]:
            raise PartitionError(
                f"the nodes {found[0][0]!r} and {name!r} must be in one stage, but are mapped to "
                f"{found[0][1].name!r} and {device.name!r}"
            )
    return found[0][1] if found else None


def _complete(problem: Problem, found: Sequence[Device | None]) -> list[Device]:
    graph = problem.graph
    devices = list(found)
    # The last of what a block reads, so that no stage is left and entered again.
    place: dict[Device, int] = {}
    for device in devices:
        if device is not None:
            place.setdefault(device, len(place))
    for index, device in enumerate(devices):
        before = [d for d in (devices[other] for other in graph.before[index]) if d is not None]
        if device is None and before:
            devices[index] = max(before, key=place.__getitem__)
    for index in reversed(range(len(devices))):
        after = [d for d in (devices[other] for other in graph.after[index]) if d is not None]
        if devices[index] is None and after:
            devices[index] = min(after, key=place.__getitem__)
    default = next(iter(place), problem.devices[0])
    return [default if device is None else device for device in devices]


def _refuse_unknown(unknown: Sequence[str], known: Sequence[str]) -> None:
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0], known, 1)
    raise UnknownNodeError(
        f"the program has no node or module {_shown(unknown)}",
        names=tuple(unknown),
        hint=f"did you mean {close[0]!r}?" if close else "names of nodes: Partitioning.nodes",
    )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more
