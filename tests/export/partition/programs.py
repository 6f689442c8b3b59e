"""Programs made node by node, for partitioners: their graphs have the shapes that a test needs, of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aotpack.export.ir.program import Program
from aotpack.export.torch_compat.fake_tensors import FakeTensorMode
from aotpack.spec import CallSpec, DType, Signature, TensorLeaf, TensorSpec, TupleSpec

aten = torch.ops.aten
ITEM = 4  # bytes of an element


@dataclass(frozen=True)
class Made:
    """A node: which others it reads (-1: the input of the program), the elements of its result, and its weight: a
    number, and elements; nodes with the same number share it.
    """

    reads: tuple[int, ...]
    size: int = 1
    weight: int | None = None
    weight_size: int = 0


def program_of(nodes: Sequence[Made], input_size: int = 1) -> Program:
    """The program in which each node adds up what it reads; it returns what no node reads. The node `i` is `n{i}`."""
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    with FakeTensorMode() as mode:
        sizes = {1: mode.from_tensor(torch.empty(1))}

        def value(size: int) -> torch.Tensor:
            if size not in sizes:
                sizes[size] = torch.empty(size)
            return sizes[size]

        given = graph.placeholder("x")
        given.meta["val"] = value(input_size)
        made: list[torch.fx.Node] = []
        read: set[int] = set()
        for index, node in enumerate(nodes):
            arguments = [given if other < 0 else made[other] for other in node.reads]
            read.update(node.reads)
            if node.weight is not None:
                name = f"w{node.weight}"
                if not hasattr(root, name):
                    root.register_buffer(name, torch.empty(node.weight_size, device="meta"))
                weight = graph.get_attr(name)
                weight.meta["val"] = value(node.weight_size)
                arguments.append(weight)
            made.append(graph.create_node("call_function", aten.cat.default, (arguments,), name=f"n{index}"))
            made[-1].meta["val"] = value(node.size)
    results = [node for index, node in enumerate(made) if index not in read]
    graph.output(tuple(results))
    specs = tuple(
        TensorSpec(node.name, DType.FLOAT32, (int(node.meta["val"].shape[0]),), (0,)) for node in (given, *results)
    )
    leaves = TupleSpec(tuple(TensorLeaf(index) for index in range(len(results))))
    signature = Signature("forward", (), specs[:1], specs[1:], CallSpec((TensorLeaf(0),), ("x",)), leaves)
    return Program("made", torch.fx.GraphModule(root, graph), signature)


def chain(count: int, size: int = 1, weight_size: int = 0) -> list[Made]:
    """Nodes of which each reads the one before; each with a weight of its own if it has elements."""
    return [
        Made((index - 1,), size, index if weight_size else None, weight_size)
        if weight_size
        else Made((index - 1,), size)
        for index in range(count)
    ]


def held_bytes(nodes: Sequence[Made], stage: Sequence[int], input_size: int = 1) -> int:
    """The memory of a stage, computed in another way: at each step, all that a later step or another stage reads."""
    own = sorted(stage)
    weights = {nodes[i].weight: nodes[i].weight_size for i in own if nodes[i].weight is not None}
    foreign = {other for i in own for other in nodes[i].reads if other not in own}
    inputs = sum(input_size if other < 0 else nodes[other].size for other in foreign)
    readers = {i: [j for j, node in enumerate(nodes) if i in node.reads] for i in own}
    peak = 0
    for at in own:
        live = [
            i
            for i in own
            if i <= at and (not readers[i] or i == at or any(j not in own or j >= at for j in readers[i]))
        ]
        peak = max(peak, sum(nodes[i].size for i in live))
    return ITEM * (sum(weights.values()) + inputs + peak)
