"""Stages as programs of their own, which read and return what they hand to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.fx

from aotpack.archive import Reference, Source
from aotpack.errors import PartitionError
from aotpack.export.ir.dims import dims_of_symbols
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import ancestors, fake_mode, has_order, is_impure
from aotpack.export.ir.values import dense_value
from aotpack.export.partition.nodes import NodeRoles
from aotpack.export.partition.result import Partitioning
from aotpack.export.partition.stage_inputs import StageInputs
from aotpack.export.passes.runner import propagate, run_passes
from aotpack.export.symbolic_shapes.dims import shape_element
from aotpack.export.symbolic_shapes.guards import dim_symbol
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.tracing.interface import manifest_dtype, memory_order
from aotpack.spec import CallSpec, DictSpec, Signature, TensorLeaf, TensorSpec, TupleSpec


@dataclass(frozen=True)
class StageProgram:
    """A stage that can be compiled.

    Attributes:
        program: its inputs and outputs are those of the references, in order.
        inputs, outputs: which of the entry's inputs and outputs, and of the values between stages, they are.
        device: the name of its logical device.
        index: the number that it has in the assignment of nodes to stages, of which some may be empty.
        layouts_changed: whether an input lies in memory in another order than the graph says.
    """

    program: Program
    inputs: tuple[Reference, ...]
    outputs: tuple[Reference, ...]
    device: str
    index: int
    layouts_changed: bool = False


@dataclass(frozen=True)
class SplitProgram:
    """The stages of a program in the order in which they run, and the values that they hand to each other.

    Attributes:
        values: what only stages read; `device` is an index into `devices`.
        devices: names of logical devices.
    """

    stages: tuple[StageProgram, ...]
    values: tuple[TensorSpec, ...]
    devices: tuple[str, ...]


def split(program: Program, partitioning: Partitioning) -> SplitProgram:
    """The stages of a program. What nothing reads is left out.

    Args:
        program: the program that was partitioned, or an equal one.
        partitioning: the stage of each node of the program.

    Raises:
        PartitionError: the partitioning is of other nodes.
    """
    names = {node.name for node in NodeRoles(program).computing()}
    if names != partitioning.nodes.keys():
        raise PartitionError(
            f"the partitioning is not of the nodes of {program.signature.name!r} after its passes",
            hint="partition the same program, with the same passes, or pass build_archive a function: "
            "partitioning=lambda program: partition(program, …, passes=False)",
        )
    stages = {name: info.stage for name, info in partitioning.nodes.items()}
    found = split_at(program, stages, [stage.device.name for stage in partitioning.stages])
    return replace(found, stages=tuple(map(settled, found.stages)))


def split_at(program: Program, stage_of: Mapping[str, int], devices: Sequence[str]) -> SplitProgram:
    """The stages of a program, as they were taken out of it: `settled` gives the ones to compile.

    Args:
        program: the program.
        stage_of: the stage of each of its computing nodes, by name. No stage needs results of a later one.
        devices: the name of the logical device of each stage.
    """
    return _Split(program, stage_of, devices).run()


def settled(stage: StageProgram) -> StageProgram:
    """The stage with the strides that follow from those of its inputs."""
    program = run_passes(stage.program, (follow_inputs,) if stage.layouts_changed else ())
    return replace(stage, program=program, layouts_changed=False)


class _Split:
    def __init__(self, program: Program, stage_of: Mapping[str, int], devices: Sequence[str]) -> None:
        self._program = program
        self._roles = NodeRoles(program)
        self._symbols = {
            symbol: ref.mul * dim_symbol(ref.dim) + ref.add for symbol, ref in dims_of_symbols(program).items()
        }
        self._dims = [dim.name for dim in program.signature.dims]
        self._devices = devices
        computing = list(self._roles.computing())
        live = _live(program, computing)
        self._stage_of = {node: stage_of[node.name] for node in computing if node in live}
        self._placeholders = list(program.graph.find_nodes(op="placeholder"))
        self._results: list[torch.fx.Node] = list(program.graph.output_node().args[0])  # type: ignore[arg-type]
        # By node: where it is to be found.
        self._references: dict[torch.fx.Node, Reference] = {
            node: Reference(Source.INPUT, index) for index, node in enumerate(self._placeholders)
        }
        self._values: list[TensorSpec] = []

    def run(self) -> SplitProgram:
        """The stages that have something to do."""
        used = sorted({*self._stage_of.values(), *self._stages_of_results()})
        devices = tuple(dict.fromkeys(self._devices[stage] for stage in used))
        nodes: dict[int, list[torch.fx.Node]] = {stage: [] for stage in used}
        for node, stage in self._stage_of.items():
            nodes[stage].append(node)
        results: dict[int, list[int]] = {stage: [] for stage in used}
        for index, stage in enumerate(self._stages_of_results()):
            results[stage].append(index)
        inputs = {
            stage: StageInputs(self._roles, nodes[stage], [self._results[i] for i in results[stage]]) for stage in used
        }
        read = {node for given in inputs.values() for node in given.nodes}.difference(self._results)
        stages = []
        for stage in used:
            device = self._devices[stage]
            handed = [node for node in nodes[stage] if node in read]
            stages.append(
                self._stage(inputs[stage], nodes[stage], results[stage], handed, stage, devices.index(device))
            )
        return SplitProgram(tuple(stages), tuple(self._values), devices)

    def _stage(
        self,
        inputs: StageInputs,
        nodes: Sequence[torch.fx.Node],
        results: Sequence[int],
        handed: Sequence[torch.fx.Node],
        index: int,
        number: int,
    ) -> StageProgram:
        """A stage of these nodes. `results`: indices of results of the entry that it returns. `handed`: what only other
        stages read of it.
        """
        # Results of the entry may be read by later stages too.
        graph, layouts_changed = self._graph(inputs, nodes, [*(self._results[i] for i in results), *handed])
        for i in results:
            if self._results[i] in self._stage_of:
                self._references.setdefault(self._results[i], Reference(Source.OUTPUT, i))
        read = tuple(self._references[node] for node in inputs.nodes)
        given = tuple(self._spec(node) for node in inputs.nodes)
        for node in handed:
            self._references[node] = Reference(Source.VALUE, len(self._values))
            self._values.append(self._value_spec(node, number))
        outputs = (*(Reference(Source.OUTPUT, i) for i in results), *(self._references[node] for node in handed))
        returned = (*(self._program.signature.outputs[i] for i in results), *(self._spec(node) for node in handed))
        program = replace(
            self._program,
            graph_module=module_over(self._program.graph_module, graph),
            signature=self._signature(given, returned),
            reference=None,
        )
        return StageProgram(program, read, outputs, self._devices[index], index, layouts_changed)

    def _signature(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Signature:
        whole = self._program.signature
        given = DictSpec(tuple(spec.name for spec in inputs), tuple(TensorLeaf(i) for i in range(len(inputs))))
        returned = TupleSpec(tuple(TensorLeaf(i) for i in range(len(outputs))))
        return Signature(whole.name, whole.dims, inputs, outputs, CallSpec((given,), ("inputs",)), returned)

    def _graph(
        self, inputs: StageInputs, nodes: Sequence[torch.fx.Node], outputs: Sequence[torch.fx.Node]
    ) -> tuple[torch.fx.Graph, bool]:
        """The graph of a stage, and whether an input lies in memory in another order than in the program."""
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        changed = False
        for node in inputs.nodes:
            copy = graph.create_node("placeholder", node.name, name=node.name)
            copy.meta = dict(node.meta)
            if node.op != "placeholder":
                value, order = node.meta["val"], self._spec(node).order
                changed = changed or not has_order(value, order)
                if not all(isinstance(step, int) for step in value.stride()) or not has_order(value, order):
                    copy.meta["val"] = dense_value(value, order, fake_mode(self._program.graph_module))
            copies[node] = copy

        def take(node: torch.fx.Node) -> torch.fx.Node:
            """The copy of a node: made now, if it is one that each stage has for itself."""
            if node not in copies:
                source = inputs.size_source(node)
                if source is None:
                    copies[node] = graph.node_copy(node, take)
                else:
                    tensor, axis = source
                    if axis is None:
                        copies[node] = take(tensor)
                    else:
                        copies[node] = graph.call_function(torch.ops.aten.sym_size.int, (take(tensor), axis))
                        copies[node].meta = dict(node.meta)
            return copies[node]

        for node in nodes:
            copies[node] = graph.node_copy(node, take)
        graph.output(tuple(take(node) for node in outputs))
        return graph, changed

    def _spec(self, node: torch.fx.Node) -> TensorSpec:
        """An input of a stage, or what it hands on, as its signature has it."""
        reference = self._references.get(node)
        if reference is not None and reference.source is Source.INPUT:
            return self._program.signature.inputs[reference.index]
        if reference is not None and reference.source is Source.OUTPUT:
            return replace(self._program.signature.outputs[reference.index], name=node.name)
        if reference is not None:
            return self._values[reference.index]
        return self._value_spec(node, 0)

    def _value_spec(self, node: torch.fx.Node, device: int) -> TensorSpec:
        value = node.meta["val"]
        shape = tuple(shape_element(expression(size).xreplace(self._symbols), self._dims) for size in value.shape)
        return TensorSpec(node.name, manifest_dtype(value.dtype), shape, memory_order(value), device=device)

    def _stages_of_results(self) -> list[int]:
        """The stage that returns each result of the entry. Inputs and constants are returned where they are used."""
        last = max(self._stage_of.values(), default=0)
        found = []
        for node in self._results:
            own = self._stage_of.get(node)
            users = [self._stage_of[user] for user in node.users if user in self._stage_of]
            found.append(own if own is not None else min(users, default=last))
        return found


def follow_inputs(program: Program) -> Program:
    """Recomputes strides from those of the inputs."""
    propagate(program)
    return program


def _live(program: Program, computing: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes that results depend on, and those that have effects."""
    return ancestors([*program.graph.output_node().all_input_nodes, *filter(is_impure, computing)])
