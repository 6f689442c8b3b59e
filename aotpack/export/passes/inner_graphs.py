"""Passes over the graphs inside a graph: branches of torch.cond, conditions and bodies of loops.

Captured graphs get weights as operands, as everything else. While passes run, weights are constants of the graph that
reads them, so that they are packed and folded there as anywhere; afterwards what is left of them are operands again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import (
    CALLS,
    calls_graphs,
    constants_inside,
    constants_outside,
    given_regions,
    inner_graph,
    operands_of,
    region_names,
)
from aotpack.export.ir.rewriter import has_order
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.tracing.inner_memory import separate_memory
from aotpack.export.tracing.interface import manifest_dtype, memory_order
from aotpack.spec import CallSpec, DType, Signature, TensorSpec, TupleSpec


def promised_layouts(node: torch.fx.Node) -> list[tuple[torch.fx.Node, torch.Tensor]]:
    """The operands of a call of graphs, each with the tensor, laid out alike, that these were captured with."""
    module: Any = node.graph.owning_module
    inner = inner_graph(module, given_regions(node)[0]).graph.find_nodes(op="placeholder")
    pairs = [(operand, taken.meta["val"]) for operand, taken in zip(operands_of(node), inner, strict=True)]
    # What a loop takes apart reaches the graph in slices.
    return [(o, v) for o, v in pairs if isinstance(v, torch.Tensor) and o.meta["val"].dim() == v.dim()]


def everywhere(step: Callable[[Program], Program], program: Program) -> Program:
    """The program after a pass over its graph and over those inside."""
    program = step(program)
    for name, results in _captured_results(program.graph_module).items():
        inner = _inner_program(program, inner_graph(program.graph_module, name), results)
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
    if not region_names(program.graph_module):
        return program
    fixed = {name for name in program.constant_names() if not program.constant_info(name).mutated}
    return program.with_graph(constants_inside(program.graph_module, fixed))


def with_constants_outside(program: Program) -> Program:
    """The program in which the graphs inside get constants as operands."""
    if not region_names(program.graph_module):
        return program
    module = constants_outside(program.graph_module)
    # Passes may have folded a result into a constant, or removed a copy.
    separate_memory(module)
    return program.with_graph(module)


# ---- a graph inside as a program ------------------------------------------------------------------------------------


def _captured_results(module: torch.fx.GraphModule) -> dict[str, list[Any]]:
    """By graph inside, those of its results that are results of the operator: these keep their layouts."""
    captured: dict[str, list[Any]] = {}
    for node in module.graph.nodes:
        if calls_graphs(node):
            call = CALLS[node.target]
            values = list(node.meta["val"])
            if call.counted_by is not None:
                values = values[: len(node.args[call.counted_by])]
            for i, name in enumerate(given_regions(node)):
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
