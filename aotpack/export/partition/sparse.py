"""Mode "sparse-nn": embedding tables and their bags on memory devices, the rest on compute devices."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.errors import PartitionError
from aotpack.export.ir.rewriter import operator_name
from aotpack.export.partition.devices import COMPUTE, MEMORY
from aotpack.export.partition.plan import Plan, Problem
from aotpack.export.partition.size_based import fill


def plan_sparse(problem: Problem) -> Plan:
    """The plan. Nodes before an embedding go with it, if they read no weights but embedding tables; otherwise the
    embedding stays on a compute device.

    Raises:
        PartitionError: a kind of device is missing.
        NodeTooLargeError: a node fits on no device of its kind.
        DeviceMemoryError: the devices of a kind are too few or too small.
    """
    compute = [device for device in problem.devices if device.kind == COMPUTE]
    memory = [device for device in problem.devices if device.kind == MEMORY]
    for kind, found in ((COMPUTE, compute), (MEMORY, memory)):
        if not found:
            raise PartitionError(
                f"the mode 'sparse-nn' needs a device of the kind {kind!r}",
                hint=f"Device(name, memory_bytes, kind={kind!r})",
            )
    sparse = _sparse_blocks(problem)
    tables = sorted(sparse)
    rest = [block for block in range(len(problem.graph.blocks)) if block not in sparse]
    devices = {**fill(problem, tables, memory), **fill(problem, rest, compute)}
    return Plan.by_device([device for _, device in sorted(devices.items())])


def is_embedding(node: torch.fx.Node) -> bool:
    """Whether a node looks rows up in a table of the model."""
    if "embedding" not in operator_name(node) or not node.args:
        return False
    table = node.args[0]
    return isinstance(table, torch.fx.Node) and table.op == "get_attr"


def _sparse_blocks(problem: Problem) -> set[int]:
    graph = problem.graph
    embeddings = {i for i, block in enumerate(graph.blocks) if any(is_embedding(node) for node in block.nodes)}
    # Blocks that only an embedding, or nothing with weights of its own, stands before.
    light = [False] * len(graph.blocks)
    for index, block in enumerate(graph.blocks):
        own = index in embeddings or not block.weights
        light[index] = own and all(light[other] for other in graph.before[index])
    found: set[int] = set()
    pending = [index for index in embeddings if light[index]]
    while pending:
        index = pending.pop()
        if index not in found:
            found.add(index)
            pending += graph.before[index]
    return found
