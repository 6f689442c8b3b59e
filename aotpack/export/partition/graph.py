"""The program as a partitioner sees it: blocks of nodes that no cut may separate, values between them, and weights."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.fx

from aotpack.export.ir.program import Program, identity
from aotpack.export.partition.nodes import NodeRoles
from aotpack.export.partition.sizes import Sizes

ENTRY = -1
"""The producer of the inputs of the entry."""


@dataclass
class Value:
    """A tensor that blocks read or the entry returns.

    Attributes:
        node: what produces it.
        nbytes: its size.
        producer: index of a block, or `ENTRY`.
        readers: indices of the other blocks that read it, in order.
        is_result: whether the entry returns it.
    """

    node: torch.fx.Node
    nbytes: int
    producer: int
    readers: list[int] = field(default_factory=list)
    is_result: bool = False


@dataclass(frozen=True)
class Weight:
    """A constant: its attributes (several where one tensor has several names) and its size."""

    attributes: tuple[str, ...]
    nbytes: int


@dataclass
class Block:
    """Nodes that belong to one stage.

    Attributes:
        nodes: in order.
        reads: indices of values of other blocks, and of inputs of the entry.
        makes: indices of values that other blocks read or the entry returns.
        weights: indices of weights.
        scratch: bytes of values that only this block reads.
    """

    nodes: list[torch.fx.Node] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    makes: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    scratch: int = 0

    @property
    def name(self) -> str:
        """The name of its first node."""
        return self.nodes[0].name


class WorkGraph:
    """Blocks in an order in which they can run, values and weights."""

    def __init__(self, program: Program, sizes: Sizes) -> None:
        self.program = program
        self.roles = NodeRoles(program)
        self.blocks = [Block(nodes) for nodes in _blocks(self.roles)]
        self.position = {node: index for index, node in enumerate(program.graph.nodes)}
        self.block_of = {node: index for index, block in enumerate(self.blocks) for node in block.nodes}
        self.values: list[Value] = []
        self.weights: list[Weight] = []
        self._fill(sizes)
        self.before = [sorted(found) for found in self._predecessors()]
        self.after: list[list[int]] = [[] for _ in self.blocks]
        for index, found in enumerate(self.before):
            for other in found:
                self.after[other].append(index)

    def _fill(self, sizes: Sizes) -> None:
        """Values, weights, and what each block reads, makes and has for itself."""
        graph = self.program.graph
        returned = set(graph.output_node().all_input_nodes)
        numbers: dict[torch.fx.Node, int] = {}
        for node in graph.nodes:
            known = node.meta.get("val")
            if node.op == "placeholder" or (node in self.block_of and isinstance(known, torch.Tensor)):
                producer = self.block_of.get(node, ENTRY)
                numbers[node] = len(self.values)
                self.values.append(Value(node, sizes.nbytes(known), producer, is_result=node in returned))
        weights: dict[object, int] = {}
        attributes: list[list[str]] = []
        nbytes: list[int] = []
        for index, block in enumerate(self.blocks):
            reads: dict[int, None] = {}
            used: dict[int, None] = {}
            for node in block.nodes:
                for argument in _tensors_read(node, self.roles):
                    if argument.op == "get_attr":
                        attribute = str(argument.target)
                        key = _weight_key(self.program, attribute)
                        number = weights.setdefault(key, len(nbytes))
                        if number == len(nbytes):
                            attributes.append([])
                            nbytes.append(sizes.nbytes(argument.meta["val"]))
                        if attribute not in attributes[number]:
                            attributes[number].append(attribute)
                        used[number] = None
                    elif argument in numbers and self.block_of.get(argument, ENTRY) != index:
                        reads[numbers[argument]] = None
            block.reads, block.weights = list(reads), list(used)
            for value in reads:
                self.values[value].readers.append(index)
        self.weights = [Weight(tuple(names), size) for names, size in zip(attributes, nbytes, strict=True)]
        for node, index in self.block_of.items():
            made = self.values[numbers[node]] if node in numbers else None
            if made is not None and (made.readers or made.is_result):
                self.blocks[index].makes.append(numbers[node])
            elif made is not None:
                self.blocks[index].scratch += made.nbytes
            else:
                parts = sum(sizes.nbytes(user.meta.get("val")) for user in node.users if user in numbers)
                self.blocks[index].scratch += max(0, sizes.nbytes(node.meta.get("val")) - parts)

    def _predecessors(self) -> list[set[int]]:
        found: list[set[int]] = []
        for index, block in enumerate(self.blocks):
            # Numbers, and results that are not tensors, are read within a block.
            found.append({self.values[value].producer for value in block.reads} - {ENTRY, index})
        return found


def _tensors_read(node: torch.fx.Node, roles: NodeRoles) -> Iterator[torch.fx.Node]:
    """The tensors, and the numbers among the inputs of the entry, that a stage with this node has to have."""
    seen: set[torch.fx.Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        argument = pending.pop()
        if argument in seen:
            continue
        seen.add(argument)
        if not roles.is_number(argument):
            value = argument.meta.get("val")
            if argument.op != "get_attr" or isinstance(value, torch.Tensor):
                yield argument
        elif roles.needs_tensor(argument):
            pending += argument.all_input_nodes
        else:
            # Of a tensor whose size is asked for, a stage needs the size only.
            pending += [value for value in argument.all_input_nodes if roles.is_free(value) and value.op != "get_attr"]


def _weight_key(program: Program, attribute: str) -> object:
    if program.constant_info(attribute).recipe is not None:
        return attribute
    return identity(program.original(attribute))


def _blocks(roles: NodeRoles) -> list[list[torch.fx.Node]]:
    """The computing nodes in groups that no cut may separate, in an order in which they can run."""
    from networkx import DiGraph, strongly_connected_components
    from networkx.utils import UnionFind

    nodes = list(roles.computing())
    position = {node: index for index, node in enumerate(nodes)}
    union = UnionFind(range(len(nodes)))
    for one, other in roles.inseparable():
        union.union(position[one], position[other])
    group = [union[index] for index in range(len(nodes))]
    graph = DiGraph()
    graph.add_nodes_from(group)
    for index, node in enumerate(nodes):
        for argument in _tensors_read(node, roles):
            if argument in position and group[position[argument]] != group[index]:
                graph.add_edge(group[position[argument]], group[index])
    # Groups that need results of each other become one.
    component = {
        member: number for number, members in enumerate(strongly_connected_components(graph)) for member in members
    }
    members: dict[int, list[int]] = {}
    for index in range(len(nodes)):
        members.setdefault(component[group[index]], []).append(index)
    edges = {(component[a], component[b]) for a, b in graph.edges if component[a] != component[b]}
    order = topological_order({number: found[0] for number, found in members.items()}, edges)
    return [[nodes[index] for index in members[number]] for number in order]


def topological_order(keys: dict[int, int], edges: set[tuple[int, int]]) -> list[int]:
    """Numbers in an order that agrees with all edges; otherwise by their keys. Shorter where there is a cycle."""
    after: dict[int, list[int]] = {number: [] for number in keys}
    waiting = dict.fromkeys(keys, 0)
    for one, other in edges:
        after[one].append(other)
        waiting[other] += 1
    ready = [(keys[number], number) for number, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for other in after[number]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (keys[other], other))
    return order


def stage_order(graph: WorkGraph, assignment: Sequence[int]) -> tuple[list[int], list[int]]:
    """The stages of an assignment of blocks in an order in which they can run, and those for which there is none.

    Stages are numbers of `assignment`; in doubt, the one with the first block comes first.
    """
    keys: dict[int, int] = {}
    edges: set[tuple[int, int]] = set()
    for index, stage in enumerate(assignment):
        keys.setdefault(stage, index)
        for other in graph.before[index]:
            if assignment[other] != stage:
                edges.add((assignment[other], stage))
    order = topological_order(keys, edges)
    ordered = set(order)
    return order, [stage for stage in keys if stage not in ordered]
