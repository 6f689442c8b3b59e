"""A program that computes a call and its gradients becomes two: `forward` and `backward`.

The forward returns what the backward reads of it after its own outputs; no part of its result has these. The backward
is called with `saved`, which names outputs and inputs of the forward by number, and with the gradients of the outputs.
An archive so says by itself which tensors a caller keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from aotpack.archive.code import dims_of
from aotpack.archive.halves import GRADIENTS, SAVED
from aotpack.errors import CaptureError
from aotpack.export.autograd.gradients import output_gradient
from aotpack.export.autograd.halves import Halves, halves
from aotpack.export.ir.dims import dims_of_symbols
from aotpack.export.ir.program import ConstantInfo, Program
from aotpack.export.ir.rewriter import fake_mode, has_order
from aotpack.export.ir.values import dense_value
from aotpack.export.passes.runner import propagate, run_passes
from aotpack.export.symbolic_shapes.declared import Note
from aotpack.export.symbolic_shapes.dims import shape_element
from aotpack.export.symbolic_shapes.guards import dim_symbol
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.export.torch_compat.graphs import module_over
from aotpack.export.tracing.interface import manifest_dtype, memory_order
from aotpack.export.tracing.numbers import as_tensor
from aotpack.spec import (
    CallSpec,
    DictSpec,
    DimRef,
    DType,
    Expr,
    Signature,
    Spec,
    TensorLeaf,
    TensorSpec,
    ValueLeaf,
    children,
    tensor_indices,
)

_aten = torch.ops.aten

# An archive has the inputs of example calls as a whole.
_LARGEST_EXAMPLE = 16 << 20


def cut(
    program: Program,
    parameters: Mapping[str, Sequence[str]],
    names: tuple[str, str],
    memory_budget: float,
) -> Program:
    """The program of the forward; its companion is that of the backward.

    Args:
        program: the capture of a `ForwardBackward`.
        parameters: the constants that become state, so that their values can change from call to call, and all names
            that the model has for each.
        names: of the two entries.
        memory_budget: see `saved_values`.

    Raises:
        CaptureError: it cannot be cut.
    """
    known = set(program.constant_names())
    state = {
        name: ConstantInfo("parameter", tuple(sources), mutated=True)
        for name, sources in parameters.items()
        if name in known
    }
    graph_module = program.editable()
    _without_detach(graph_module.graph)
    program = program.with_graph(graph_module, state)
    return _Cut(program, names, memory_budget).run()


class _Cut:
    def __init__(self, program: Program, names: tuple[str, str], memory_budget: float) -> None:
        self._program = program
        self._names = names
        whole = program.signature
        assert isinstance(whole.out_spec, DictSpec)
        self._out_spec = whole.out_spec.items[0]
        self._num_outputs = len(list(tensor_indices(self._out_spec)))
        self._placeholders = list(program.graph.find_nodes(op="placeholder"))
        leaves = list(_leaves(self._out_spec))
        # By node: the output whose gradient it is, in the order of the outputs.
        self._gradients: dict[torch.fx.Node, int] = {}
        for node in program.graph.find_nodes(op="call_function", target=output_gradient):
            leaf = leaves[int(str(node.args[1]))]
            assert isinstance(leaf, TensorLeaf)
            self._gradients[node] = leaf.index
        self._gradients = dict(sorted(self._gradients.items(), key=lambda item: item[1]))
        self._halves: Halves = halves(program, list(self._gradients), self._num_outputs, memory_budget)
        self._results: list[torch.fx.Node] = list(program.graph.output_node().args[0])  # type: ignore[arg-type]
        self._symbols = {
            symbol: ref.mul * dim_symbol(ref.dim) + ref.add for symbol, ref in dims_of_symbols(program).items()
        }
        self._dims = [dim.name for dim in whole.dims]
        # By node: which output or input of the forward it is.
        self._outputs = {node: i for i, node in reversed([*enumerate(self._results[: self._num_outputs])])}
        self._added = [node for node in self._halves.kept if node not in self._outputs]
        for i, node in enumerate((*self._added, *self._halves.numbers)):
            self._outputs[node] = self._num_outputs + i
        self._inputs = {node: i for i, node in enumerate(self._placeholders)}

    def run(self) -> Program:
        forward, backward = self._forward(), self._backward()
        reference = self._program.reference
        if reference is not None:
            values = _run(forward, reference.inputs)
            outputs = (*reference.outputs[: self._num_outputs], *values[self._num_outputs :])
            forward_reference = replace(reference, outputs=outputs)
            given = [forward_reference.outputs[i] for i in self._kept_outputs()]
            given += [forward_reference.inputs[i] for i in self._kept_inputs()]
            given += [output_gradient(outputs[i], node.args[1]) for node, i in self._gradients.items()]
            forward = replace(forward, reference=forward_reference)
            size = sum(value.nbytes for value in given)
            if size <= _LARGEST_EXAMPLE:
                inputs, gradients = tuple(map(_dense, given)), reference.outputs[self._num_outputs :]
                backward = replace(backward, reference=replace(reference, inputs=inputs, outputs=gradients))
            else:
                text = f"has no example call, because its inputs have {size >> 20} MiB: use a smaller example"
                forward = replace(forward, notes=(*forward.notes, Note(self._names[1], text)))
        return replace(forward, companions=(backward,))

    # ---- the forward ----

    def _forward(self) -> Program:
        whole = self._program.signature
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        kept: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self._placeholders:
            copies[node] = graph.node_copy(node)
        for node in self._halves.forward:
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        for node in self._halves.kept:
            if node.op != "call_function":
                # The forward overwrites it.
                with graph.inserting_after(copies[node] if node.op == "get_attr" else _last_placeholder(graph)):
                    kept[node] = graph.call_function(_aten.clone.default, (copies[node],))
                kept[node].meta["val"] = node.meta["val"]
        outputs = [copies[node] for node in self._results[: self._num_outputs]]
        graph.output((*outputs, *(kept.get(node, copies[node]) for node in self._added)))
        module = module_over(self._program.graph_module, graph)
        numbers = [as_tensor(module, copies[node], "int") for node in self._halves.numbers]
        output = graph.output_node()
        output.args = ((*output.args[0], *numbers),)  # type: ignore[misc]
        specs = [replace(s, name=_output_name(s.name)) for s in whole.outputs[: self._num_outputs]]
        for node in (*self._added, *self._halves.numbers):
            spec = self._spec(node, f"saved.{len(specs) - self._num_outputs}")
            specs.append(replace(spec, dim=None, formula=None))
        signature = replace(whole, name=self._names[0], outputs=tuple(specs), out_spec=self._out_spec)
        return replace(self._program, graph_module=module, signature=signature, reference=None)

    # ---- the backward ----

    def _kept_outputs(self) -> list[int]:
        """The outputs of the forward that the backward reads."""
        return sorted({self._outputs[node] for node in (*self._halves.kept, *self._halves.numbers)})

    def _kept_inputs(self) -> list[int]:
        return sorted(self._inputs[node] for node in self._halves.inputs)

    def _backward(self) -> Program:
        whole = self._program.signature
        by_output = {self._outputs[node]: node for node in (*self._halves.kept, *self._halves.numbers)}
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        specs: list[TensorSpec] = []
        changed = False
        for i in self._kept_outputs():
            node = by_output[i]
            spec = whole.outputs[i] if i < self._num_outputs else self._spec(node, "")
            spec = replace(spec, name=f"saved.outputs.{i}")
            changed |= self._place(graph, node, spec, copies)
            specs.append(spec)
        for i in self._kept_inputs():
            spec = replace(whole.inputs[i], name=f"saved.inputs.{i}", mutated=False)
            self._place(graph, self._placeholders[i], spec, copies)
            specs.append(spec)
        for node, i in self._gradients.items():
            name = _output_name(whole.outputs[i].name).replace("output", GRADIENTS, 1)
            spec = replace(whole.outputs[i], name=name)
            changed |= self._place(graph, node, spec, copies)
            specs.append(spec)

        def take(node: torch.fx.Node) -> torch.fx.Node:
            """The copy of a node: made now, if it is a constant or a size of what only the forward has."""
            if node not in copies:
                source = self._halves.sizes.get(node)
                if source is None:
                    assert node.op == "get_attr"
                    copies[node] = graph.node_copy(node, take)
                elif source[1] is None:
                    copies[node] = take(source[0])
                else:
                    copies[node] = graph.call_function(_aten.sym_size.int, (take(source[0]), source[1]))
                    copies[node].meta = dict(node.meta)
            return copies[node]

        for node in self._halves.backward:
            copies[node] = graph.node_copy(node, take)
        returned: list[torch.fx.Node] = []
        for node in self._results[self._num_outputs :]:
            result = take(node)
            if result.op == "placeholder":
                # Results have memory of their own.
                result = graph.call_function(_aten.clone.default, (result,))
                result.meta["val"] = node.meta["val"]
            returned.append(result)
        graph.output(tuple(returned))
        _refuse_data_dependent(specs)
        signature = self._backward_signature(specs)
        known = {dim.name for dim in signature.dims}
        program = replace(
            self._program,
            graph_module=module_over(self._program.graph_module, graph),
            signature=signature,
            reference=None,
            # What is said of other dims, the forward has seen to.
            checks=tuple(check for check in self._program.checks if dims_of(check.code) <= known),
            notes=(),
        )
        return run_passes(program, (_follow_inputs,)) if changed else program

    def _place(
        self, graph: torch.fx.Graph, node: torch.fx.Node, spec: TensorSpec, copies: dict[torch.fx.Node, torch.fx.Node]
    ) -> bool:
        """Adds an input; whether it lies in memory in another order than in the forward."""
        copy = graph.create_node("placeholder", node.name, name=node.name)
        copy.meta = {"val": node.meta["val"]}
        copies[node] = copy
        value = node.meta["val"]
        if node.op == "placeholder" or not isinstance(value, torch.Tensor):
            return False
        if all(isinstance(step, int) for step in value.stride()) and has_order(value, spec.order):
            return False
        copy.meta["val"] = dense_value(value, spec.order, fake_mode(self._program.graph_module))
        return not has_order(value, spec.order)

    def _backward_signature(self, inputs: Sequence[TensorSpec]) -> Signature:
        whole = self._program.signature
        outputs, own = self._kept_outputs(), self._kept_inputs()
        numbers = iter(range(len(inputs)))
        saved = DictSpec(
            ("outputs", "inputs"),
            tuple(
                DictSpec(tuple(indices), tuple(TensorLeaf(next(numbers)) for _ in indices))
                for indices in (outputs, own)
            ),
        )
        wanted = {i: next(numbers) for i in self._gradients.values()}
        assert isinstance(whole.out_spec, DictSpec)
        index = {i: i - self._num_outputs for i in range(self._num_outputs, len(whole.outputs))}
        dims = _dims_of(inputs)
        return Signature(
            self._names[1],
            tuple(dim for dim in whole.dims if dim.name in dims),
            tuple(inputs),
            self._gradient_specs(),
            CallSpec((saved, _gradients_of(self._out_spec, wanted)), (SAVED, GRADIENTS)),
            DictSpec(whole.out_spec.keys[1:], tuple(_renumbered(item, index) for item in whole.out_spec.items[1:])),
        )

    def _gradient_specs(self) -> tuple[TensorSpec, ...]:
        """Results of the backward; gradients of parameters lie in memory as these do."""
        whole = self._program.signature
        assert isinstance(whole.out_spec, DictSpec)
        specs = list(whole.outputs)
        parameters = whole.out_spec.items[1]
        assert isinstance(parameters, DictSpec)
        for name, leaf in zip(parameters.keys, parameters.items, strict=True):
            if isinstance(leaf, TensorLeaf) and name in self._program.constants:
                order = memory_order(self._program.original(str(name)))
                specs[leaf.index] = replace(specs[leaf.index], order=order)
        return tuple(specs[self._num_outputs :])

    # ---- both ----

    def _spec(self, node: torch.fx.Node, name: str) -> TensorSpec:
        """What the forward keeps, as an output; or as an input of the backward."""
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            element = self._element(value)
            plain = isinstance(element, DimRef) and (element.mul, element.add) == (1, 0)
            dim = element.dim if plain and isinstance(element, DimRef) else None
            formula = None if plain or isinstance(element, int) else element
            return TensorSpec(name, DType.INT64, (), (), number="int", dim=dim, formula=formula, device=None)
        shape = tuple(map(self._element, value.shape))
        return TensorSpec(name, manifest_dtype(value.dtype), shape, memory_order(value))

    def _element(self, size: Any) -> int | DimRef | Expr:
        return shape_element(expression(size).xreplace(self._symbols), self._dims)


def _without_detach(graph: torch.fx.Graph) -> None:
    """Removes what cuts outputs from their history, so that an output that the backward reads is kept as it is."""
    results: Any = graph.output_node().args[0]
    returned = set(results)
    for node in graph.find_nodes(op="call_function", target=_aten.detach.default):
        base = node.args[0]
        if node in returned and (base.op != "call_function" or base in returned):
            continue
        if node in returned:
            returned.add(base)
        node.replace_all_uses_with(base)
        graph.erase_node(node)


def _follow_inputs(program: Program) -> Program:
    """Recomputes strides from those of the inputs."""
    propagate(program)
    return program


class _Values(torch.fx.Interpreter):
    """Computes what a graph returns, and writes to nothing."""

    def run_node(self, n: torch.fx.Node) -> Any:
        return None if n.target is _aten.copy_.default else super().run_node(n)


def _run(program: Program, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    placeholders = program.graph.find_nodes(op="placeholder")
    given = [
        value if isinstance(node.meta["val"], torch.Tensor) else value.item()
        for node, value in zip(placeholders, inputs, strict=True)
    ]
    with torch.no_grad():
        found: Any = _Values(program.runnable()).run(*given)
    # Some are views of others, or of parameters.
    return [_dense(value.detach().clone()) for value in found]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous()


def _last_placeholder(graph: torch.fx.Graph) -> torch.fx.Node:
    nodes: list[torch.fx.Node] = graph.find_nodes(op="placeholder")
    return nodes[-1]


def _output_name(name: str) -> str:
    """Of `output.outputs.logits`, an output of the whole: `output.logits`."""
    return name.replace("output.outputs", "output", 1)


def _refuse_data_dependent(inputs: Sequence[TensorSpec]) -> None:
    """Refuses inputs of the backward whose sizes a call cannot be checked for."""
    for spec in inputs:
        if any(isinstance(size, Expr) and size.code is None for size in spec.shape):
            kept = "a gradient" if spec.name.startswith(GRADIENTS) else "a tensor of the forward"
            raise CaptureError(
                f"the backward needs {kept} with a size that comes out of the data: {spec}",
                hint="pad such results to a size that follows from the inputs, or detach() them",
            )


def _leaves(spec: Spec) -> Iterator[Spec]:
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        yield spec
    for child in children(spec):
        yield from _leaves(child)


def _renumbered(spec: Spec, index: Mapping[int, int]) -> Spec:
    if isinstance(spec, TensorLeaf):
        return TensorLeaf(index[spec.index])
    if isinstance(spec, ValueLeaf):
        return spec
    return replace(spec, items=tuple(_renumbered(item, index) for item in spec.items))


def _gradients_of(spec: Spec, wanted: Mapping[int, int]) -> Spec:
    """The structure of the outputs with an input for each that has a gradient, and None for the others."""
    if isinstance(spec, TensorLeaf) and spec.index in wanted:
        return TensorLeaf(wanted[spec.index])
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        return ValueLeaf(None)
    return replace(spec, items=tuple(_gradients_of(item, wanted) for item in spec.items))


def _dims_of(inputs: Sequence[TensorSpec]) -> set[str]:
    """The dims that these inputs give."""
    sizes = {size.dim for spec in inputs for size in spec.shape if isinstance(size, DimRef)}
    return sizes | {spec.dim for spec in inputs if spec.dim is not None}
