"""Makes the program of a variant look from outside like its entry.

Where a dim has one value, numbers that a call gives or gets may have become constants of the capture: the module takes
and returns them all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx

from aotpack.errors import BuildError
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.tracing.numbers import NUMBER_DTYPES
from aotpack.spec import CallSpec, Signature, Spec, TensorLeaf, TensorSpec, ValueLeaf, children

Numbers = dict[int, torch.Tensor]
"""By index among the inputs or outputs of the entry: numbers that are constants of the variant."""


def as_entry(program: Program, entry: Signature, name: str) -> Program:
    """The program with the inputs and outputs of `entry`, in number, order and memory layout.

    Args:
        program: the variant's, with its own sizes.
        entry: the general signature.
        name: the variant's.

    Raises:
        BuildError: it takes or returns something else than the entry.
    """
    own = program.signature
    graph_module = program.editable()
    inputs, given = _inputs(graph_module, own, entry, name)
    outputs, returned = _outputs(graph_module, own, entry, name)
    graph_module.recompile()
    reference = program.reference
    if reference is not None:
        inputs_given = _filled(reference.inputs, given)
        reference = replace(reference, inputs=inputs_given, outputs=_filled(reference.outputs, returned))
    signature = replace(own, inputs=inputs, outputs=outputs, in_spec=entry.in_spec, out_spec=entry.out_spec)
    return replace(program.with_graph(graph_module), signature=signature, reference=reference)


def _inputs(
    graph_module: torch.fx.GraphModule, own: Signature, entry: Signature, name: str
) -> tuple[tuple[TensorSpec, ...], Numbers]:
    graph = graph_module.graph
    # What is inserted goes in front of the input that follows it, or of the first call.
    following = [*graph.find_nodes(op="placeholder"), next(node for node in graph.nodes if node.op != "placeholder")]
    specs: list[TensorSpec] = []
    constants: Numbers = {}
    for wanted, found in _paired(entry.in_spec, own.in_spec, "takes other arguments", name, own, entry):
        spec = entry.inputs[wanted.index]
        if isinstance(found, TensorLeaf):
            following = following[1:]
            specs.append(_same(spec, own.inputs[found.index], "input", name))
            continue
        value = _number(found, spec, "takes other arguments", name, own, entry)
        with graph.inserting_before(following[0]):
            node = graph.placeholder(f"unread_{len(specs)}")
        with fake_mode(graph_module):
            node.meta["val"] = torch.empty((), dtype=value.dtype)
        constants[len(specs)] = value
        specs.append(replace(spec, dim=None))
    return tuple(specs), constants


def _outputs(
    graph_module: torch.fx.GraphModule, own: Signature, entry: Signature, name: str
) -> tuple[tuple[TensorSpec, ...], Numbers]:
    graph = graph_module.graph
    end = graph.output_node()
    results: Any = end.args[0]
    specs: list[TensorSpec] = []
    nodes: list[torch.fx.Node] = []
    constants: Numbers = {}
    for wanted, found in _paired(entry.out_spec, own.out_spec, "returns another structure", name, own, entry):
        spec = entry.outputs[wanted.index]
        if isinstance(found, TensorLeaf):
            specs.append(replace(_same(spec, own.outputs[found.index], "output", name), order=spec.order))
            nodes.append(results[found.index])
            continue
        value = _number(found, spec, "returns another structure", name, own, entry)
        with graph.inserting_before(end):
            node = graph.call_function(torch.ops.aten.scalar_tensor.default, (value.item(),), {"dtype": value.dtype})
        with fake_mode(graph_module):
            node.meta["val"] = torch.empty((), dtype=value.dtype)
        constants[len(specs)] = value
        specs.append(spec)
        nodes.append(node)
    end.args = (tuple(nodes),)
    return tuple(specs), constants


def _paired(
    wanted: Spec | CallSpec, found: Spec | CallSpec, how: str, name: str, own: Signature, entry: Signature
) -> Iterator[tuple[TensorLeaf, TensorLeaf | ValueLeaf]]:
    """The tensors and numbers of the entry, each with what the variant has in its place, in order."""
    if isinstance(found, (TensorLeaf, ValueLeaf)) and isinstance(wanted, TensorLeaf):
        yield wanted, found
        return
    alike = wanted == found if isinstance(wanted, ValueLeaf) else _node(wanted) == _node(found)
    if not alike:
        raise _differs(how, name, own, entry)
    for pair in zip(children(wanted), children(found), strict=True):
        yield from _paired(*pair, how, name, own, entry)


def _node(spec: Spec | CallSpec) -> object:
    """A node of a structure without what is below it."""
    below = len(children(spec))
    if isinstance(spec, CallSpec):
        return (below, spec.kwargs_keys)
    return (type(spec), below, getattr(spec, "keys", None), getattr(spec, "type", None))


def _number(found: ValueLeaf, spec: TensorSpec, how: str, name: str, own: Signature, entry: Signature) -> torch.Tensor:
    """The constant that a variant has in the place of a number of the entry."""
    if spec.number is None or type(found.value).__name__ != spec.number:
        raise _differs(how, name, own, entry)
    return torch.tensor(found.value, dtype=NUMBER_DTYPES[spec.number])


def _same(wanted: TensorSpec, found: TensorSpec, kind: str, name: str) -> TensorSpec:
    facts = (
        ("dtype", wanted.dtype, found.dtype),
        ("number of dims", wanted.rank, found.rank),
        ("kind of number", wanted.number, found.number),
    )
    for what, first, second in facts:
        if first != second:
            raise BuildError(
                f"the variant {name!r} differs from the general one: the {what} of {kind} {wanted.name!r} is {second}, "
                f"but {first} in general",
                hint="all variants of an entry must have the same inputs and outputs; remove this one",
            )
    if found.mutated and not wanted.mutated:
        raise BuildError(
            f"the variant {name!r} differs from the general one: it writes to {kind} {wanted.name!r}",
            hint="all variants of an entry must write to the same tensors; remove this one",
        )
    return found


def _differs(how: str, name: str, own: Signature, entry: Signature) -> BuildError:
    return BuildError(
        f"the variant {name!r} {how} than the general one:\n  {own}\n  {entry}",
        hint="all variants of an entry must have the same inputs and outputs; remove this one",
    )


def _filled(tensors: Sequence[torch.Tensor], numbers: Numbers) -> tuple[torch.Tensor, ...]:
    rest = iter(tensors)
    return tuple(numbers[i] if i in numbers else next(rest) for i in range(len(tensors) + len(numbers)))
