"""Latencies of nodes: from a table of the user, else from a simple model.

The model: a node takes `device.overhead` seconds, and the longer of its floating-point operations at `device.flops` and
its bytes (of what it reads and makes, weights included) at `device.bandwidth`. Views take no time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.fx

from aotpack.export.ir.rewriter import operator_name
from aotpack.export.ir.values import is_view
from aotpack.export.partition.devices import Device
from aotpack.export.partition.sizes import Sizes

Latencies = Mapping[str, float] | Callable[[torch.fx.Node, Device], float | None]


class Costs:
    """Latencies of a program's nodes on devices, in seconds."""

    def __init__(self, sizes: Sizes, latencies: Latencies | None) -> None:
        """`latencies`: seconds by the name of a node or operator (`aten.linear`), or a function of a node and a device
        that returns None where the model above applies.
        """
        self._sizes = sizes
        self._latencies = latencies
        # (operations, bytes) by node.
        self._work: dict[torch.fx.Node, tuple[int, int]] = {}

    def seconds(self, node: torch.fx.Node, device: Device) -> float:
        """The latency of a node on a device."""
        if callable(self._latencies):
            known = self._latencies(node, device)
        elif self._latencies is not None:
            known = self._latencies.get(node.name, self._latencies.get(operator_name(node)))
        else:
            known = None
        if known is not None:
            return known
        if is_view(node):
            return 0.0
        work = self._work.get(node)
        if work is None:
            work = self._work[node] = (self._operations(node), self._bytes(node))
        return device.overhead + max(work[0] / device.flops, work[1] / device.bandwidth)

    def _bytes(self, node: torch.fx.Node) -> int:
        values = (node, *node.all_input_nodes)
        # A lookup reads some rows of its table.
        if "embedding" in operator_name(node):
            values = tuple(value for value in values if value.op != "get_attr")
        return sum(self._sizes.nbytes(value.meta.get("val")) for value in values)

    def _operations(self, node: torch.fx.Node) -> int:
        """Multiplications and additions of products; one for each element of other results."""
        value = node.meta.get("val")
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        if not isinstance(first, torch.Tensor):
            return 0
        results = self._sizes.numel(first)
        shapes = [
            self._sizes.shape(argument.meta["val"])
            for argument in node.all_input_nodes
            if isinstance(argument.meta.get("val"), torch.Tensor)
        ]
        matrices = [shape for shape in shapes if len(shape) >= 2]
        name = operator_name(node).rpartition(".")[2]
        if len(matrices) < 2:
            return results
        if "attention" in name:
            # Queries times keys, and the weights of these times values.
            return 4 * math.prod(matrices[0]) * matrices[1][-2]
        if "conv" in name:
            weight = matrices[1]
            return 2 * results * math.prod(weight[1:])
        if any(part in name for part in ("linear", "mm", "matmul", "addmm")):
            inner = matrices[-2][-1] if name in ("addmm", "baddbmm", "addbmm") else matrices[0][-1]
            return 2 * results * inner
        return results
