"""Graphs inside a graph: the branches of torch.cond, the condition and body of a loop.

They are attributes of the graph module, which the call of the operator reads as `get_attr` nodes. All that they read
are operands of that call, or constants: tensors that they hold themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.torch_compat.graphs import copy_of, module_over


@dataclass(frozen=True)
class Call:
    """Where the arguments of an operator over graphs are.

    Attributes:
        graphs: the places of the graphs.
        operands: the places of their operands, in the order in which they get them. The last ones are the same in each
            call of the graphs.
        results: the graphs, by number, whose results are those of the operator.
        counted_by: the argument that has as many operands as results are of the operator; None: all are.
    """

    graphs: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    counted_by: int | None = None


CALLS: dict[Any, Call] = {
    torch.ops.higher_order.cond: Call((1, 2), (3,), (0, 1)),
    torch.ops.higher_order.while_loop: Call((0, 1), (2, 3), (1,)),
    torch.ops.higher_order.scan: Call((0,), (1, 2, 3), (0,), 1),
    torch.ops.higher_order.map_impl: Call((0,), (1, 2), ()),
}


def calls_graphs(node: torch.fx.Node) -> bool:
    """Whether a node calls an operator over graphs inside."""
    return node.op == "call_function" and node.target in CALLS


def is_region(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Whether a node stands for a graph inside."""
    return node.op == "get_attr" and isinstance(getattr(module, str(node.target), None), torch.fx.GraphModule)


def region_names(module: torch.fx.GraphModule) -> list[str]:
    """The attributes that are graphs inside, each once."""
    nodes = module.graph.find_nodes(op="get_attr")
    return list(dict.fromkeys(str(node.target) for node in nodes if is_region(module, node)))


def inner_graph(module: torch.fx.GraphModule, name: str) -> torch.fx.GraphModule:
    """The graph inside of this name."""
    found = getattr(module, name)
    assert isinstance(found, torch.fx.GraphModule)
    return found


def given_regions(node: torch.fx.Node) -> list[str]:
    """The names of the graphs that a call gets."""
    places: Any = [node.args[place] for place in CALLS[node.target].graphs]
    return [str(given.target) for given in places]


def operands_of(node: torch.fx.Node) -> list[Any]:
    """The operands of a call, as its graphs get them."""
    groups: Any = [node.args[place] for place in CALLS[node.target].operands]
    return [operand for group in groups for operand in group]


def all_nodes(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """The nodes of the graph and of those inside, at any depth."""
    yield from module.graph.nodes
    for name in region_names(module):
        yield from all_nodes(inner_graph(module, name))


def graphs(module: torch.fx.GraphModule, path: str = "") -> Iterator[tuple[str, torch.fx.GraphModule]]:
    """The graph, by the path "", and those inside at any depth, by the names on the way."""
    yield path, module
    for name in region_names(module):
        yield from graphs(inner_graph(module, name), f"{path}.{name}" if path else name)


def constants(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """The nodes that stand for tensors of the graph module."""
    for node in module.graph.find_nodes(op="get_attr"):
        if not is_region(module, node):
            yield node


# ---- where constants are --------------------------------------------------------------------------------------------


def constants_inside(module: torch.fx.GraphModule, fixed: Collection[str]) -> torch.fx.GraphModule:
    """A copy of the module in which operands of graphs inside that are constants of `fixed` are constants of these."""
    module = copied(module)
    calls = [node for node in module.graph.nodes if calls_graphs(node)]
    uses = [name for node in calls for name in given_regions(node)]
    for node in calls:
        names = given_regions(node)
        inner = [copied(inner_graph(module, name)) for name in names]
        if all(uses.count(name) == 1 for name in names):
            _move_inside(module, node, inner, fixed)
        for name, graph in zip(names, inner, strict=True):
            setattr(module, name, constants_inside(graph, fixed))
    return module


def constants_outside(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of the module in which constants of graphs inside are operands of these."""
    module = copied(module)
    for node in [node for node in module.graph.nodes if calls_graphs(node)]:
        inner = [constants_outside(inner_graph(module, name)) for name in given_regions(node)]
        _move_outside(module, node, inner)
    return module


def _move_inside(
    module: torch.fx.GraphModule, node: torch.fx.Node, inner: Sequence[torch.fx.GraphModule], fixed: Collection[str]
) -> None:
    operands = _fixed_operands(node)
    placeholders = [graph.graph.find_nodes(op="placeholder")[-len(operands) :] for graph in inner]
    kept = []
    for i, operand in enumerate(operands):
        if not _is_constant(module, operand) or str(operand.target) not in fixed:
            kept.append(operand)
            continue
        name = str(operand.target)
        for graph, inputs in zip(inner, placeholders, strict=True):
            if inputs[i].users:
                hold(graph, name, _tensor(module, name))
                with graph.graph.inserting_after(inputs[i]):
                    constant = graph.graph.get_attr(name)
                constant.meta["val"] = operand.meta["val"]
                inputs[i].replace_all_uses_with(constant)
            graph.graph.erase_node(inputs[i])
    _set_fixed_operands(node, kept)
    for operand in operands:
        if _is_constant(module, operand) and not operand.users:
            module.graph.erase_node(operand)


def _move_outside(module: torch.fx.GraphModule, node: torch.fx.Node, inner: Sequence[torch.fx.GraphModule]) -> None:
    added: dict[str, torch.fx.Node] = {}
    for graph in inner:
        for constant in list(constants(graph)):
            tensor = _tensor(graph, str(constant.target))
            name = _free_name(module, str(constant.target), tensor)
            if name not in added:
                hold(module, name, tensor)
                with module.graph.inserting_before(node):
                    added[name] = module.graph.get_attr(name)
                added[name].meta["val"] = constant.meta["val"]
                add_fixed_operand(node, added[name], inner)
            place = list(added).index(name) - len(added)
            constant.replace_all_uses_with(graph.graph.find_nodes(op="placeholder")[place])
            graph.graph.erase_node(constant)
    for i, graph in enumerate(inner):
        # Without the tensors that its graph no longer reads.
        setattr(module, given_regions(node)[i], module_over(graph, graph.graph))


def add_fixed_operand(call: torch.fx.Node, operand: torch.fx.Node, inner: Sequence[torch.fx.GraphModule]) -> None:
    """Adds a last operand to a call, and an input for it to each of its graphs."""
    for graph in inner:
        inputs = graph.graph.find_nodes(op="placeholder")
        first = next(iter(graph.graph.nodes))
        with graph.graph.inserting_after(inputs[-1]) if inputs else graph.graph.inserting_before(first):
            graph.graph.placeholder(operand.name).meta["val"] = operand.meta["val"]
    _set_fixed_operands(call, [*_fixed_operands(call), operand])


def _free_name(module: torch.fx.GraphModule, name: str, tensor: torch.Tensor) -> str:
    """An attribute that is this tensor, or that the module does not have. Names are unique in one graph only."""
    free, number = name, 1
    while (known := _tensor(module, free)) is not None and known is not tensor:
        number += 1
        free = f"{name}_{number}"
    return free


def _fixed_operands(node: torch.fx.Node) -> list[Any]:
    given: Any = node.args[CALLS[node.target].operands[-1]]
    return list(given)


def _set_fixed_operands(node: torch.fx.Node, operands: list[Any]) -> None:
    """In a list or a tuple, as there were: programs from files have lists."""
    place = CALLS[node.target].operands[-1]
    given = operands if isinstance(node.args[place], list) else tuple(operands)
    node.args = (*node.args[:place], given, *node.args[place + 1 :])


def _is_constant(module: torch.fx.GraphModule, value: Any) -> bool:
    return isinstance(value, torch.fx.Node) and value.op == "get_attr" and not is_region(module, value)


def _tensor(module: torch.nn.Module, path: str) -> Any:
    """The tensor at a dotted path; None where there is none."""
    try:
        return operator.attrgetter(path)(module)
    except AttributeError:
        return None


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph module with a graph of its own over the same tensors and graphs inside."""
    return module_over(module, copy_of(module.graph))


def hold(module: torch.nn.Module, path: str, tensor: torch.Tensor) -> None:
    """Has the module hold a tensor at a dotted path, if it does not."""
    *parents, name = path.split(".")
    owner = module
    for parent in parents:
        if not hasattr(owner, parent):
            owner.add_module(parent, torch.nn.Module())
        owner = getattr(owner, parent)
    if hasattr(owner, name):
        return
    if isinstance(tensor, torch.nn.Parameter):
        owner.register_parameter(name, tensor)
    else:
        owner.register_buffer(name, tensor, persistent=False)
