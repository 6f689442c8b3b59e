"""Passes over the graphs inside a graph: branches of torch.cond, conditions and bodies of loops.

Captured graphs get weights as operands, as everything else. While passes run, weights are constants of the graph that
reads them, so that they are packed and folded there as anywhere; afterwards what is left of them are operands again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program, get_attribute
from aotpack.export.ir.regions import constants, is_region
from aotpack.export.ir.rewriter import has_order
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.tracing.inner_results import return_own_memory
from aotpack.export.tracing.interface import manifest_dtype, memory_order
from aotpack.spec import CallSpec, DType, Signature, TensorSpec, TupleSpec


@dataclass(frozen=True)
class _Call:
    """Where the arguments of an operator over graphs are: the graphs, and their operands in the order in which these get
    them. The last operands are the same in each call of the graphs.
    """

    graphs: tuple[int, ...]
    operands: tuple[int, ...]
    # The graphs, by number, whose results are those of the operator: all, or as many as an argument has operands.
    results: tuple[int, ...] = ()
    counted_by: int | None = None


_CALLS: dict[Any, _Call] = {
    torch.ops.higher_order.cond: _Call((1, 2), (3,), (0, 1)),
    torch.ops.higher_order.while_loop: _Call((0, 1), (2, 3), (1,)),
    torch.ops.higher_order.scan: _Call((0,), (1, 2, 3), (0,), 1),
    torch.ops.higher_order.map_impl: _Call((0,), (1, 2)),
}


def calls_graphs(node: torch.fx.Node) -> bool:
    """Whether a node calls an operator over graphs inside."""
    return node.op == "call_function" and node.target in _CALLS


def promised_layouts(node: torch.fx.Node) -> list[tuple[torch.fx.Node, torch.Tensor]]:
    """The operands of a call of graphs, each with the tensor, laid out alike, that these were captured with."""
    module: Any = node.graph.owning_module
    inner = _region(module, _given_regions(node)[0]).graph.find_nodes(op="placeholder")
    operands = [operand for place in _CALLS[node.target].operands for operand in node.args[place]]  # type: ignore[union-attr]
    pairs = [(operand, taken.meta["val"]) for operand, taken in zip(operands, inner, strict=True)]
    # What a loop takes apart reaches the graph in slices.
    return [(o, v) for o, v in pairs if isinstance(v, torch.Tensor) and o.meta["val"].dim() == v.dim()]


def everywhere(step: Callable[[Program], Program], program: Program) -> Program:
    """The program after a pass over its graph and over those inside."""
    program = step(program)
    for name, results in _captured_results(program.graph_module).items():
        inner = _inner_program(program, _region(program.graph_module, name), results)
        changed = inner if inner is None else everywhere(step, inner)
        if changed is None or changed is inner:
            continue
        module = module_over(program.graph_module, program.graph)
        setattr(module, name, changed.graph_module)
        program = program.with_graph(module, changed.constants, changed.originals)
        program = replace(program, reports=changed.reports)
    return program


def with_constants_inside(program: Program) -> Program:
    """The program in which the graphs inside hold the constants that they read."""
    if not _regions(program.graph_module):
        return program
    fixed = {name for name in program.constant_names() if not program.constant_info(name).mutated}
    return program.with_graph(_constants_inside(program.graph_module, fixed))


def with_constants_outside(program: Program) -> Program:
    """The program in which the graphs inside get constants as operands."""
    if not _regions(program.graph_module):
        return program
    module = _constants_outside(program.graph_module)
    # Passes may have folded a result into a constant, or removed a copy.
    return_own_memory(module)
    return program.with_graph(module)


def _regions(graph_module: torch.fx.GraphModule) -> list[str]:
    """The attributes that are graphs inside, each once."""
    nodes = graph_module.graph.find_nodes(op="get_attr")
    return list(dict.fromkeys(str(node.target) for node in nodes if is_region(graph_module, node)))


def _region(graph_module: torch.fx.GraphModule, name: str) -> torch.fx.GraphModule:
    found = getattr(graph_module, name)
    assert isinstance(found, torch.fx.GraphModule)
    return found


# ---- a graph inside as a program ------------------------------------------------------------------------------------


def _captured_results(module: torch.fx.GraphModule) -> dict[str, list[Any]]:
    """By graph inside, those of its results that are results of the operator: these keep their layouts."""
    captured: dict[str, list[Any]] = {}
    for node in module.graph.nodes:
        if calls_graphs(node):
            call = _CALLS[node.target]
            values = list(node.meta["val"])
            if call.counted_by is not None:
                values = values[: len(node.args[call.counted_by])]
            for i, name in enumerate(_given_regions(node)):
                captured[name] = values if i in call.results else []
    return captured


def _inner_program(program: Program, region: torch.fx.GraphModule, captured: Sequence[Any]) -> Program | None:
    """None where results lie in memory as no pass would keep them: with holes."""
    returned: Any = region.graph.output_node().args[0]
    if not isinstance(returned, (list, tuple)) or not all(isinstance(value, torch.fx.Node) for value in returned):
        return None
    results = [*captured, *(value.meta["val"] for value in returned[len(captured) :])]
    if not all(has_order(value, memory_order(value)) for value in results if isinstance(value, torch.Tensor)):
        return None
    inputs = [node.meta["val"] for node in region.graph.find_nodes(op="placeholder")]
    specs = [tuple(map(_spec, values)) for values in (inputs, results)]
    signature = Signature(program.signature.name, (), specs[0], specs[1], CallSpec((), ()), TupleSpec(()))
    return replace(program, graph_module=region, signature=signature)


def _spec(value: Any) -> TensorSpec:
    """What passes ask of an input or a result: its dtype and layout."""
    if not isinstance(value, torch.Tensor):
        return TensorSpec("value", DType.INT64, (), (), number="int")
    return TensorSpec("value", manifest_dtype(value.dtype), (0,) * value.dim(), memory_order(value))


# ---- where constants are --------------------------------------------------------------------------------------------


def _constants_inside(module: torch.fx.GraphModule, fixed: set[str]) -> torch.fx.GraphModule:
    """A copy of the module over graphs in which operands that are constants of `fixed` became constants."""
    module = _copy(module)
    readers = [node for node in module.graph.nodes if node.target in _CALLS]
    uses = [name for node in readers for name in _given_regions(node)]
    for node in readers:
        names = _given_regions(node)
        regions = {name: _copy(_region(module, name)) for name in names}
        if all(uses.count(name) == 1 for name in names):
            _move_inside(module, node, list(regions.values()), fixed)
        for name, region in regions.items():
            setattr(module, name, _constants_inside(region, fixed))
    return module


def _move_inside(
    module: torch.fx.GraphModule, node: torch.fx.Node, regions: Sequence[torch.fx.GraphModule], fixed: set[str]
) -> None:
    place = _CALLS[node.target].operands[-1]
    operands: list[Any] = list(node.args[place])  # type: ignore[arg-type]
    kept = []
    placeholders = [list(region.graph.find_nodes(op="placeholder"))[-len(operands) :] for region in regions]
    for i, operand in enumerate(operands):
        if not _is_constant(module, operand) or str(operand.target) not in fixed:
            kept.append(operand)
            continue
        for region, inputs in zip(regions, placeholders, strict=True):
            inner = inputs[i]
            with region.graph.inserting_after(inner):
                constant = region.graph.get_attr(str(operand.target))
            constant.meta["val"] = operand.meta["val"]
            _hold(region, str(operand.target), get_attribute(module, str(operand.target)))
            inner.replace_all_uses_with(constant)
            region.graph.erase_node(inner)
            if not constant.users:
                region.graph.erase_node(constant)
    _set_operands(node, place, kept)
    for operand in operands:
        if _is_constant(module, operand) and not operand.users:
            module.graph.erase_node(operand)


def _constants_outside(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of the module over graphs in which constants became operands."""
    module = _copy(module)
    for node in list(module.graph.nodes):
        if node.target not in _CALLS:
            continue
        regions = {name: _constants_outside(_region(module, name)) for name in _given_regions(node)}
        _move_outside(module, node, list(regions.values()))
        for name, region in regions.items():
            setattr(module, name, region)
    return module


def _move_outside(module: torch.fx.GraphModule, node: torch.fx.Node, regions: Sequence[torch.fx.GraphModule]) -> None:
    place = _CALLS[node.target].operands[-1]
    values = {str(c.target): (c.meta["val"], region) for region in regions for c in constants(region)}
    added = []
    for name, (value, holder) in values.items():
        _hold(module, name, get_attribute(holder, name))
        with module.graph.inserting_before(node):
            added.append(module.graph.get_attr(name))
        added[-1].meta["val"] = value
        for region in regions:
            inputs = region.graph.find_nodes(op="placeholder")
            first = next(iter(region.graph.nodes))
            with region.graph.inserting_after(inputs[-1]) if inputs else region.graph.inserting_before(first):
                inner = region.graph.placeholder(added[-1].name)
            inner.meta["val"] = value
            for constant in [c for c in constants(region) if c.target == name]:
                constant.replace_all_uses_with(inner)
                region.graph.erase_node(constant)
    _set_operands(node, place, [*node.args[place], *added])  # type: ignore[misc]


def _set_operands(node: torch.fx.Node, place: int, operands: list[Any]) -> None:
    """In a list or a tuple, as there were: programs from files have lists."""
    given = operands if isinstance(node.args[place], list) else tuple(operands)
    node.args = (*node.args[:place], given, *node.args[place + 1 :])


def _given_regions(node: torch.fx.Node) -> list[str]:
    """The attributes of the graphs that a call gets."""
    return [str(node.args[place].target) for place in _CALLS[node.target].graphs]  # type: ignore[union-attr]


def _is_constant(module: torch.fx.GraphModule, value: Any) -> bool:
    return isinstance(value, torch.fx.Node) and value.op == "get_attr" and not is_region(module, value)


def _copy(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    memo: dict[Any, Any] = {}
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, memo))
    return module_over(module, graph)


def _hold(module: torch.nn.Module, path: str, tensor: torch.Tensor) -> None:
    """Has the module hold a tensor at a dotted path."""
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
