"""Which nodes of a program, as it was at some point of a build, the nodes of later programs are made from.

`mark` gives every node its own name as its origin. `Rewriter.replace` carries origins over: what takes the place of a
node, and of the nodes that only this one read, is made from them. A node that a pass adds for others has no origins of
its own; it serves its first reader.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.fx

from aotpack.export.ir import regions
from aotpack.export.ir.program import Program

_KEY = "made_from"

Origins = dict[torch.fx.Node, tuple[str, ...]]


def node_name(graph: str, name: str) -> str:
    """The name of a node in a program: that of a graph inside comes first."""
    return f"{graph}.{name}" if graph else name


def mark(program: Program) -> None:
    """Makes every node of the program, and of the graphs inside, its own origin."""
    for path, module in regions.graphs(program.graph_module):
        for node in module.graph.nodes:
            node.meta[_KEY] = (node_name(path, node.name),)


def merge(by: torch.fx.Node, *nodes: torch.fx.Node) -> None:
    """Has `by` be made from these nodes too."""
    found = (_of(by), *map(_of, nodes))
    names = dict.fromkeys(name for origins in found for name in origins)
    if names:
        by.meta[_KEY] = tuple(names)


def replaced(node: torch.fx.Node, by: torch.fx.Node) -> None:
    """`by` takes the place of `node`, of which all uses have gone; so it does of what only that one reads."""
    merge(by, node)
    pending = [given for given in node.all_input_nodes if set(given.users) == {node}]
    seen = {by}
    while pending:
        given = pending.pop()
        if given in seen or given.op != "call_function":
            continue
        seen.add(given)
        merge(by, given)
        pending += [other for other in given.all_input_nodes if set(other.users) == {given}]


def transfer(module: torch.fx.GraphModule, origin: Sequence[torch.fx.Node], to: Sequence[torch.fx.Node]) -> None:
    """What the nodes of the module's graph are made from: nodes of `to` in place of those in `origin`, in order."""
    pairs = zip(origin, to, strict=True)
    names = {old: new for one, other in pairs for old, new in zip(_of(one), _of(other), strict=True)}
    for node in module.graph.nodes:
        if found := _of(node):
            node.meta[_KEY] = tuple(names.get(name, name) for name in found)


def origins(module: torch.fx.GraphModule) -> Origins:
    """By node of one graph, the names of the nodes that it is made from."""
    found: Origins = {}
    for node in reversed(module.graph.nodes):
        known = _of(node)
        served = next((found[user] for user in node.users if found.get(user)), ())
        found[node] = known or served
    return found


def _of(node: torch.fx.Node) -> tuple[str, ...]:
    names: tuple[str, ...] = node.meta.get(_KEY, ())
    return names
