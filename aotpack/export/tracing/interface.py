"""The interface of a captured graph: signature, layouts, what it mutates; a graph with these becomes a `Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import ConstantInfo, Program, Reference, get_attribute
from aotpack.export.ir.random_operators import is_random
from aotpack.export.ir.regions import all_nodes
from aotpack.export.ir.rewriter import as_node, bound_arguments, has_order, is_dense
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.declared import Declared
from aotpack.export.symbolic_shapes.dims import DimTable
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing.inner_memory import separate_memory
from aotpack.export.tracing.numbers import NUMBER_DTYPES, as_tensor, constant, factors_as_tensors, number_kind
from aotpack.export.tracing.over_functions import refuse_operators_over_functions
from aotpack.export.tracing.scan_sizes import pass_sizes_of_results
from aotpack.spec import DimRef, DType, Expr, Signature, Spec, TensorLeaf, TensorSpec, ValueLeaf

_DTYPES = {
    torch.float16: DType.FLOAT16,
    torch.float32: DType.FLOAT32,
    torch.float64: DType.FLOAT64,
    torch.bfloat16: DType.BFLOAT16,
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.uint8: DType.UINT8,
    torch.uint16: DType.UINT16,
    torch.uint32: DType.UINT32,
    torch.uint64: DType.UINT64,
    torch.bool: DType.BOOL,
    torch.complex64: DType.COMPLEX64,
    torch.complex128: DType.COMPLEX128,
    torch.float8_e4m3fn: DType.FLOAT8_E4M3FN,
    torch.float8_e4m3fnuz: DType.FLOAT8_E4M3FNUZ,
    torch.float8_e5m2: DType.FLOAT8_E5M2,
    torch.float8_e5m2fnuz: DType.FLOAT8_E5M2FNUZ,
}


def manifest_dtype(dtype: torch.dtype) -> DType:
    """The manifest's dtype.

    Raises:
        CaptureError: archives have no such dtype.
    """
    try:
        return _DTYPES[dtype]
    except KeyError:
        raise CaptureError(
            f"tensors of dtype {dtype} cannot be stored in an archive",
            hint=f"convert to one of {', '.join(str(known) for known in _DTYPES.values())}",
        ) from None


@dataclass(frozen=True)
class Call:
    """An example call.

    Attributes:
        args, kwargs: its arguments; tensors are detached. Floats and bools that vary are tensors of rank 0.
        names: by which positional arguments may be passed too; None where there is no such name.
        declared: what the user said of sizes; None for `.pt2` files.
        numbers: by leaf of `(args, kwargs)`: "int", "float" or "bool" for a number that varies.
        demanded: (leaf, axis) of sizes without a name that must not become constants.
        same: by leaf, the one that the model gets in its place (same_inputs.py).
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: Sequence[str | None]
    declared: Declared | None = None
    numbers: Mapping[int, str] = field(default_factory=dict)
    demanded: frozenset[tuple[int, int]] = frozenset()
    same: Mapping[int, int] = field(default_factory=dict)

    def leaves(self) -> list[Any]:
        """All arguments, flat."""
        return pytree.tree_leaves((self.args, self.kwargs))

    def leaf_names(self) -> list[str]:
        """A readable name for each leaf."""
        return pytree_spec.leaf_names(self.args, self.kwargs, self.names)

    def in_order_of(self, exported: ExportedProgram) -> Call:
        """The same call with its keyword arguments in the order of the signature, which torch.export uses."""
        keys = exported.call_spec.in_spec.children()[1].context or []
        if list(keys) == list(self.kwargs):
            return self
        count = len(self.leaves())
        tree = pytree.tree_structure((self.args, self.kwargs))
        args, kwargs = pytree.tree_unflatten(range(count), tree)
        moved = pytree.tree_leaves((args, {key: kwargs[key] for key in keys}))
        new = {old: i for i, old in enumerate(moved)}
        declared = self.declared
        if declared is not None:
            declared = replace(declared, sizes=tuple(declared.sizes[old] for old in moved))
        return replace(
            self,
            kwargs={key: self.kwargs[key] for key in keys},
            declared=declared,
            numbers={new[leaf]: kind for leaf, kind in self.numbers.items()},
            demanded=frozenset((new[leaf], axis) for leaf, axis in self.demanded),
            same={new[leaf]: new[source] for leaf, source in self.same.items()},
        )


@dataclass(frozen=True)
class Results:
    """What a graph returns.

    Attributes:
        tree: the structure around the leaves of the graph's output.
        eager: the leaves that eager PyTorch returned for the example call.
        orders: by the name of a result, the layout that it must have instead of the traced one.
        numbers: by leaf, the kinds of the numbers that the graph returns as tensors of rank 0.
    """

    tree: pytree.TreeSpec
    eager: Sequence[Any]
    orders: Mapping[str, tuple[int, ...]]
    numbers: Mapping[int, str] = field(default_factory=dict)


def make_program(
    entry: str, name: str, exported: ExportedProgram, graph_module: torch.fx.GraphModule, call: Call, results: Results
) -> Program:
    """Describes the graph and makes a program of it.

    Args:
        entry: the entry's name.
        name: the model's name.
        exported: what the graph was made from: it has the ranges of dims and the structure of the call.
        graph_module: flat and functional, mutations as `copy_` at the end. A placeholder per leaf of the call, in
            order; an output per leaf of `results.tree`. It is changed: what is no tensor goes.
        call: the example call, keyword arguments in the order of `exported`.
        results: of the call.

    Raises:
        CaptureError: an argument or result cannot be described in an archive, or an operator takes functions.
    """
    refuse_operators_over_functions(graph_module)
    pass_sizes_of_results(graph_module)
    separate_memory(graph_module)
    flat, leaf_names = call.leaves(), call.leaf_names()
    placeholders = list(graph_module.graph.find_nodes(op="placeholder"))
    table = DimTable(call.declared, exported.range_constraints if call.declared is None else None)
    is_input = [isinstance(value, torch.Tensor) or i in call.numbers for i, value in enumerate(flat)]
    dims = call.declared.sizes if call.declared is not None else [{} for _ in flat]
    table.name_inputs(
        [(name, node.meta["val"]) for name, node, keep in zip(leaf_names, placeholders, is_input, strict=True) if keep],
        [sizes for sizes, keep in zip(dims, is_input, strict=True) if keep],
    )
    mutated = _mutated_inputs(graph_module)
    leaves, inputs = _input_leaves(call, leaf_names, placeholders, table, mutated)
    in_spec = pytree_spec.call_spec(exported.call_spec.in_spec, iter(leaves), call.names)
    out_leaves, outputs, kept = _output_leaves(graph_module, table, results)
    out_spec = pytree_spec.to_spec(results.tree, iter(out_leaves), "the result")
    factors_as_tensors(graph_module)
    _drop_constants(graph_module, placeholders, is_input, kept)
    constants = {
        attribute: ConstantInfo(_role(graph_module, attribute), (attribute,), True)
        for attribute in _mutated_attributes(graph_module)
    }
    # What a call writes to has the values of the source model before the first one.
    repeatable = not draws_random_numbers(graph_module)
    return Program(
        name,
        graph_module,
        Signature(entry, table.dims(), tuple(inputs), tuple(outputs), in_spec, out_spec),
        constants,
        _reference(flat, is_input, results, out_leaves, outputs) if repeatable else None,
        checks=table.checks(),
        notes=table.notes(),
        questions=table.questions(),
        promised=call.declared.bounded if call.declared is not None else frozenset(),
    )


def _reference(
    flat: Sequence[Any],
    is_input: Sequence[bool],
    results: Results,
    out_leaves: Sequence[Spec],
    outputs: Sequence[TensorSpec],
) -> Reference:
    """The example call and eager's answer as tensors, numbers too."""
    inputs = (_tensor(value) for value, keep in zip(flat, is_input, strict=True) if keep)
    answers = (value for value, leaf in zip(results.eager, out_leaves, strict=True) if isinstance(leaf, TensorLeaf))
    return Reference(
        tuple(_dense(value) for value in inputs),
        tuple(_tensor(value, spec.number).detach() for value, spec in zip(answers, outputs, strict=True)),
    )


def _tensor(value: Any, number: str | None = "int") -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=NUMBER_DTYPES[number or "int"])


def _copies(graph_module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [
        node
        for node in graph_module.graph.nodes
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default
    ]


def _mutated_inputs(graph_module: torch.fx.GraphModule) -> set[str]:
    targets = (as_node(node.args[0]) for node in _copies(graph_module))
    return {target.name for target in targets if target.op == "placeholder"}


def _mutated_attributes(graph_module: torch.fx.GraphModule) -> set[str]:
    targets = (as_node(node.args[0]) for node in _copies(graph_module))
    return {str(target.target) for target in targets if target.op == "get_attr"}


def draws_random_numbers(graph_module: torch.fx.GraphModule) -> bool:
    """Whether the same call may give different results."""
    return any(map(is_random_call, all_nodes(graph_module)))


def is_random_call(node: torch.fx.Node) -> bool:
    if not is_random(node.target):
        return False
    # Dropout, alone or inside attention and recurrent networks, is random in training only.
    arguments = bound_arguments(node)
    probability = next((arguments[key] for key in ("dropout_p", "dropout", "p") if key in arguments), None)
    training = next((arguments[key] for key in ("train", "training") if key in arguments), True)
    return probability is None or (probability != 0 and bool(training))


def _role(graph_module: torch.fx.GraphModule, attribute: str) -> str:
    return "parameter" if isinstance(get_attribute(graph_module, attribute), torch.nn.Parameter) else "buffer"


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dims from outermost to innermost in memory; row-major where strides say nothing. Never adds a guard."""
    empty = any(isinstance(size, int) and size == 0 for size in tensor.shape)
    if empty or has_order(tensor, range(tensor.dim())):
        return tuple(range(tensor.dim()))
    strides = [shape_env.large_value(stride) for stride in tensor.stride()]
    # A size-1 dim may carry any stride: it stays next to its neighbour in the row-major order.
    movable = [d for d in range(tensor.dim()) if shape_env.expression(tensor.shape[d]) != 1]
    ordered = iter(sorted(movable, key=lambda d: (-strides[d], d)))
    if len(movable) == tensor.dim():
        return tuple(ordered)
    if len(movable) >= 2 and movable[0] == 1 and tensor.dim() in (4, 5) and strides[1] == 1:
        return (0, *range(2, tensor.dim()), 1)
    return tuple(next(ordered) if d in movable else d for d in range(tensor.dim()))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if is_dense(tensor) else tensor.contiguous()


def _input_leaves(
    call: Call, names: Sequence[str], placeholders: Sequence[torch.fx.Node], table: DimTable, mutated: set[str]
) -> tuple[list[Spec], list[TensorSpec]]:
    leaves: list[Spec] = []
    inputs: list[TensorSpec] = []
    for i, (value, name, node) in enumerate(zip(call.leaves(), names, placeholders, strict=True)):
        number = call.numbers.get(i)
        if number is not None:
            leaves.append(TensorLeaf(len(inputs)))
            dim, formula = _int_value(node, name, table) if number == "int" else (None, None)
            dtype = manifest_dtype(NUMBER_DTYPES[number])
            inputs.append(TensorSpec(name, dtype, (), (), number=number, dim=dim, formula=formula, device=None))
        elif isinstance(value, torch.Tensor):
            fake = node.meta["val"]
            _refuse_constants(fake, name, [axis for leaf, axis in call.demanded if leaf == i])
            shape = tuple(table.size(size, output=False, where=f"input {name!r}") for size in fake.shape)
            order = memory_order(value) if is_dense(value) else tuple(range(value.dim()))
            leaves.append(TensorLeaf(len(inputs)))
            inputs.append(TensorSpec(name, manifest_dtype(value.dtype), shape, order, node.name in mutated))
        elif value is None or isinstance(value, (bool, int, float, str)):
            leaves.append(ValueLeaf(value))
        else:
            raise CaptureError(
                f"input {name!r} is a {type(value).__name__}",
                hint="use tensors, None, bool, int, float or str in tuples, lists, dicts and dataclasses",
            )
    return leaves, inputs


def _int_value(node: torch.fx.Node, name: str, table: DimTable) -> tuple[str | None, DimRef | Expr | None]:
    """The dim whose value an int input is, or what it must be."""
    value = node.meta["val"]
    if constant(value) is not None:
        raise CaptureError(
            f"input {name!r} is dynamic, but the model turns it into the constant {constant(value)}",
            hint="remove it from dynamic_shapes, or look for Python code that needs its value",
        )
    element = table.size(value, output=False, where=f"input {name!r}")
    assert not isinstance(element, int)  # that would be a constant
    if isinstance(element, DimRef) and (element.mul, element.add) == (1, 0):
        return element.dim, None
    for dim in table.without_source(element):
        raise CaptureError(
            f"input {name!r} must be {element} in each call, but no input determines {dim!r}",
            hint=f"pass {dim!r}, as an int or as a size of a tensor, and compute {element} in the model",
        )
    return None, element


def _refuse_constants(value: torch.Tensor, name: str, axes: Sequence[int]) -> None:
    for axis in axes:
        if constant(value.shape[axis]) is not None:
            raise CaptureError(
                f"input {name!r}, axis {axis} is dynamic, but the model fixes it to {value.shape[axis]}",
                hint='use "auto" for a size that may become a constant',
            )


def _output_leaves(
    graph_module: torch.fx.GraphModule, table: DimTable, results: Results
) -> tuple[list[Spec], list[TensorSpec], list[torch.fx.Node]]:
    returned: Any = graph_module.graph.output_node().args[0]
    flat = pytree.tree_leaves(list(returned), is_leaf=lambda x: x is None)
    names = pytree_spec.output_names(results.tree, flat)
    leaves: list[Spec] = []
    specs: list[TensorSpec] = []
    kept: list[torch.fx.Node] = []
    for position, (value, name) in enumerate(zip(flat, names, strict=True)):
        known = constant(value.meta["val"]) if isinstance(value, torch.fx.Node) else value
        if not isinstance(value, torch.fx.Node) or known is not None:
            leaves.append(ValueLeaf(known))
            continue
        fake = value.meta["val"]
        number = results.numbers.get(position) or number_kind(fake)
        if number is not None:
            leaves.append(TensorLeaf(len(specs)))
            specs.append(TensorSpec(name, manifest_dtype(NUMBER_DTYPES[number]), (), (), number=number, device=None))
            kept.append(value if position in results.numbers else as_tensor(graph_module, value, number))
            continue
        if not isinstance(fake, torch.Tensor):
            raise CaptureError(
                f"{name} is a {type(fake).__name__}, which cannot be described in an archive",
                hint="return tensors, scalars, str and None in tuples, lists, dicts and dataclasses",
            )
        shape = tuple(table.size(size, output=True, where=name) for size in fake.shape)
        order = results.orders.get(name) or memory_order(fake)
        leaves.append(TensorLeaf(len(specs)))
        specs.append(TensorSpec(name, manifest_dtype(fake.dtype), shape, order))
        kept.append(value)
    return leaves, specs, kept


def _drop_constants(
    graph_module: torch.fx.GraphModule,
    placeholders: Sequence[torch.fx.Node],
    is_input: Sequence[bool],
    outputs: Sequence[torch.fx.Node],
) -> None:
    """Constants of the signature are compiled in: their placeholders and outputs go."""
    graph = graph_module.graph
    graph.output_node().args = (tuple(outputs),)
    for node, keep in zip(placeholders, is_input, strict=True):
        if keep:
            # A placeholder keeps the layout that the runtime brings inputs into.
            continue
        node.replace_all_uses_with(None)  # type: ignore[arg-type]
        graph.erase_node(node)
    graph_module.recompile()
