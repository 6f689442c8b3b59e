"""The description of compiled programs, for `aotpack inspect` and reports: see `aotpack.archive.description`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from aotpack.archive.description import (
    DescribedBlock,
    DescribedNode,
    DescribedStep,
    DescribedValue,
    DescribedVariant,
    encode_description,
)
from aotpack.export.backends.backend import LoweredModule
from aotpack.export.driver.compiled import CompiledUnit
from aotpack.export.ir import origins, regions
from aotpack.export.ir.dims import dims_of_symbols
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import layer_of, modules_around, operator_name
from aotpack.export.partition.split import SplitProgram
from aotpack.export.symbolic_shapes.dims import shape_element
from aotpack.export.symbolic_shapes.guards import dim_symbol
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.export.tracing.interface import manifest_dtype

_KINDS = {"placeholder": "input", "get_attr": "constant", "output": "output"}


def describe(
    program: Program, split: SplitProgram | None, targets: Mapping[str, Sequence[tuple[Program, LoweredModule]]]
) -> DescribedVariant:
    """The description of one variant.

    Args:
        program: after the passes for all devices; `origins.mark` has marked it.
        split: its stages, if it has several.
        targets: by target, the program and the module of each step.
    """
    described = _Described(program, {} if split is None else _stages(split))
    return DescribedVariant(
        described.classes,
        tuple(described.nodes),
        {target: tuple(described.step(each, module) for each, module in steps) for target, steps in targets.items()},
    )


def described_unit(compiled: CompiledUnit) -> DescribedVariant:
    """The description of a unit, with the modules of each target."""
    targets: dict[str, list[tuple[Program, LoweredModule]]] = {}
    for stage in compiled.stages():
        for each in stage:
            targets.setdefault(each.lowered.target, []).append((each.program, each.lowered))
    return describe(compiled.unit.program, compiled.split, targets)


def encoded_descriptions(units: Sequence[CompiledUnit], described: Mapping[str, DescribedVariant]) -> bytes:
    """The file with the descriptions of these units, which `described` has by their labels."""
    entries: dict[str, dict[str, DescribedVariant]] = {}
    for each in units:
        entries.setdefault(each.unit.name, {})[each.unit.variant] = described[each.unit.label]
    return encode_description(entries)


def source_operators(
    described: DescribedStep, nodes: Sequence[DescribedNode], module: LoweredModule
) -> list[tuple[str, ...]]:
    """The source operators of each kernel: those of the nodes that it computes, else what code generation says."""
    return [
        tuple(dict.fromkeys(nodes[index].operator for index in indices)) or call.operators
        for indices, call in zip(described.kernels, module.kernels, strict=True)
    ]


class _Described:
    def __init__(self, program: Program, stages: Mapping[str, int]) -> None:
        self._dims = [dim.name for dim in program.signature.dims]
        self._symbols = {
            symbol: ref.mul * dim_symbol(ref.dim) + ref.add for symbol, ref in dims_of_symbols(program).items()
        }
        self._program = program
        self._stages = stages
        self._index: dict[str, int] = {}
        self.nodes: list[DescribedNode] = []
        self.classes: dict[str, str] = {}
        for path, module in regions.graphs(program.graph_module):
            for node in module.graph.nodes:
                if not regions.is_region(module, node):
                    self._index[origins.node_name(path, node.name)] = len(self._index)
        # A graph inside has no modules of its own: its nodes are in that of the call, and in the backward if that is.
        around = {"": ""}
        self._derived: dict[str, tuple[int | None, str]] = {"": (None, "")}
        for path, module in regions.graphs(program.graph_module):
            for node in module.graph.nodes:
                called: list[str] = []
                if regions.calls_graphs(node):
                    called = [origins.node_name(path, name) for name in regions.given_regions(node)]
                    around.update(dict.fromkeys(called, layer_of(node) or around[path]))
                    self._derived.update(dict.fromkeys(called, self._place(path, node)))
                if not regions.is_region(module, node):
                    self.nodes.append(self._node(path, node, around[path], called))

    def _place(self, path: str, node: torch.fx.Node) -> tuple[int | None, str]:
        """Which call of the forward a call is or derives, and the operator of that if it derives it."""
        if "sequence" in node.meta:
            return node.meta["sequence"], node.meta.get("backward_of", "")
        return self._derived[path]

    def _node(self, path: str, node: torch.fx.Node, module: str, graphs: Sequence[str]) -> DescribedNode:
        name = origins.node_name(path, node.name)
        for inside, kind in modules_around(node).items():
            self.classes.setdefault(inside, kind)
        sequence, backward_of = self._place(path, node) if node.op == "call_function" else (None, "")
        read = (self._index.get(origins.node_name(path, given.name)) for given in node.all_input_nodes)
        return DescribedNode(
            name=name,
            kind=_KINDS.get(node.op, "call"),
            operator=self._operator(path, node),
            module=layer_of(node) or (module if node.op == "call_function" else ""),
            inputs=tuple(index for index in read if index is not None),
            values=tuple(self._values(node.meta.get("val"))) if node.op != "output" else (),
            graphs=tuple(graphs),
            stage=self._stages.get(name),
            sequence=sequence,
            backward_of=backward_of,
        )

    def _operator(self, path: str, node: torch.fx.Node) -> str:
        if node.op == "call_function":
            return operator_name(node)
        if path or node.op == "output":
            return ""
        if node.op == "get_attr":
            return ", ".join(self._program.constant_info(str(node.target)).sources)
        place = self._program.graph.find_nodes(op="placeholder").index(node)
        return self._program.signature.inputs[place].name

    def _values(self, value: Any) -> Iterator[DescribedValue]:
        if isinstance(value, (list, tuple)):
            for item in value:
                yield from self._values(item)
        elif isinstance(value, torch.Tensor):
            sizes = (shape_element(expression(size).xreplace(self._symbols), self._dims) for size in value.shape)
            shape = tuple(size if isinstance(size, int) else str(size) for size in sizes)
            yield DescribedValue(str(manifest_dtype(value.dtype)), shape, str(value.device.type))
        elif isinstance(value, (torch.SymBool, bool)):
            yield DescribedValue("bool", (), "")
        elif isinstance(value, (torch.SymInt, int)):
            yield DescribedValue("int", (), "")
        elif isinstance(value, (torch.SymFloat, float)):
            yield DescribedValue("float", (), "")

    def step(self, program: Program, module: LoweredModule) -> DescribedStep:
        """The kernels and the memory of a module."""
        made_from: dict[tuple[str, str], tuple[str, ...]] = {}
        for path, inner in regions.graphs(program.graph_module):
            for node, names in origins.origins(inner).items():
                made_from[path, node.name] = names
                # Code generation may know a graph inside by another name.
                made_from.setdefault(("", node.name), names)
        kernels = []
        for call in module.kernels:
            # Code of a graph inside names nodes around it too, which make its operands.
            sources = [made_from[place] for place in call.nodes if place in made_from]
            sources = sources or [made_from.get(("", name), ()) for _, name in call.nodes]
            indices = sorted({self._index[name] for found in sources for name in found if name in self._index})
            kernels.append(tuple(index for index in indices if self.nodes[index].kind == "call"))
        return DescribedStep(
            tuple(kernels),
            tuple(DescribedBlock(b.name, b.nbytes, b.first, b.last, b.output) for b in module.blocks),
        )


def _stages(split: SplitProgram) -> dict[str, int]:
    """The stage of each node that one stage computes."""
    found: dict[str, int | None] = {}
    for number, stage in enumerate(split.stages):
        for path, module in regions.graphs(stage.program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function":
                    name = origins.node_name(path, node.name)
                    found[name] = number if name not in found else None
    return {name: number for name, number in found.items() if number is not None}
