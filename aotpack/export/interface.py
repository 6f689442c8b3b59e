"""The interface of a captured graph: signature, layouts, what it mutates; a graph with these becomes a `Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export import structure
from aotpack.export.declared import Declared
from aotpack.export.dims import DimTable
from aotpack.export.editing import as_node, bound_arguments, is_dense
from aotpack.export.program import ConstantInfo, Program, Reference
from aotpack.spec import DType, Signature, Spec, TensorLeaf, TensorSpec, ValueLeaf

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
    torch.bool: DType.BOOL,
    torch.complex64: DType.COMPLEX64,
    torch.complex128: DType.COMPLEX128,
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
        args, kwargs: its arguments; tensors are detached.
        names: by which positional arguments may be passed too; None where there is no such name.
        dims: for each leaf of `(args, kwargs)`: axis → the user's name of the dim. None: no dim was named.
        declared: what the user said of sizes; None for `.pt2` files.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: Sequence[str | None]
    dims: Sequence[Mapping[int, str]] | None
    declared: Declared | None = None

    def leaves(self) -> list[Any]:
        """All arguments, flat."""
        return pytree.tree_leaves((self.args, self.kwargs))

    def leaf_names(self) -> list[str]:
        """A readable name for each leaf."""
        return structure.leaf_names(self.args, self.kwargs, self.names)


@dataclass(frozen=True)
class Results:
    """What a graph returns.

    Attributes:
        tree: the structure around the leaves of the graph's output.
        eager: what eager PyTorch returned for the example call, as flat tensors.
        orders: by the name of a result, the layout that it must have instead of the traced one.
    """

    tree: pytree.TreeSpec
    eager: Sequence[torch.Tensor]
    orders: Mapping[str, tuple[int, ...]]


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
        CaptureError: an argument or result cannot be described in an archive.
    """
    flat, leaf_names = call.leaves(), call.leaf_names()
    dims = call.dims if call.dims is not None and len(call.dims) == len(flat) else [{} for _ in flat]
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    table = DimTable(exported.range_constraints)
    is_tensor = [isinstance(value, torch.Tensor) for value in flat]
    tensors = [
        (leaf, node.meta["val"]) for leaf, node, keep in zip(leaf_names, placeholders, is_tensor, strict=True) if keep
    ]
    table.name_inputs(tensors, [names for names, keep in zip(dims, is_tensor, strict=True) if keep])
    mutated = _mutated_inputs(graph_module)
    leaves, inputs = _input_leaves(flat, leaf_names, placeholders, table, mutated)
    in_spec = structure.call_spec(exported.call_spec.in_spec, iter(leaves), call.names)
    out_leaves, outputs, kept = _output_leaves(graph_module, table, results)
    out_spec = structure.to_spec(results.tree, iter(out_leaves), "the result")
    _drop_constants(graph_module, placeholders, is_tensor, kept)
    constants = {
        attribute: ConstantInfo("buffer", (attribute,), True) for attribute in _mutated_attributes(graph_module)
    }
    reference = Reference(
        tuple(_dense(value) for value in flat if isinstance(value, torch.Tensor)),
        tuple(value.detach() for value in results.eager),
    )
    repeatable = not (_draws_random_numbers(graph_module) or constants or mutated)
    return Program(
        name,
        graph_module,
        Signature(entry, table.dims(), tuple(inputs), tuple(outputs), in_spec, out_spec),
        constants,
        reference if repeatable else None,
    )


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


def _draws_random_numbers(graph_module: torch.fx.GraphModule) -> bool:
    return any(_is_random(node) for node in graph_module.graph.nodes)


def _is_random(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    # Dropout, alone or inside attention and recurrent networks, is random in training only.
    arguments = bound_arguments(node)
    probability = next((arguments[key] for key in ("dropout_p", "dropout", "p") if key in arguments), None)
    training = next((arguments[key] for key in ("train", "training") if key in arguments), True)
    return probability is None or (probability != 0 and bool(training))


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dims from outermost to innermost in memory; row-major where strides say nothing."""
    strides = [int(s) if not isinstance(s, torch.SymInt) else s.node.hint for s in tensor.stride()]
    sizes = [int(s) if not isinstance(s, torch.SymInt) else s.node.hint for s in tensor.shape]
    known = [s for s in strides if s is not None]
    if len(known) != len(strides) or tensor.is_contiguous():
        return tuple(range(tensor.dim()))
    # A size-1 dim may carry any stride: it stays next to its neighbour in the row-major order.
    movable = [d for d in range(tensor.dim()) if sizes[d] != 1]
    ordered = iter(sorted(movable, key=lambda d: (-strides[d], d)))
    if len(movable) == tensor.dim():
        return tuple(ordered)
    if len(movable) >= 2 and movable[0] == 1 and tensor.dim() in (4, 5) and strides[1] == 1:
        return (0, *range(2, tensor.dim()), 1)
    return tuple(next(ordered) if d in movable else d for d in range(tensor.dim()))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if is_dense(tensor) else tensor.contiguous()


def _input_leaves(
    flat: Sequence[Any],
    names: Sequence[str],
    placeholders: Sequence[torch.fx.Node],
    table: DimTable,
    mutated: set[str],
) -> tuple[list[Spec], list[TensorSpec]]:
    leaves: list[Spec] = []
    inputs: list[TensorSpec] = []
    for value, name, node in zip(flat, names, placeholders, strict=True):
        if isinstance(value, torch.Tensor):
            fake = node.meta["val"]
            shape = tuple(table.size(size, output=False, where=f"input {name!r}") for size in fake.shape)
            order = memory_order(value) if is_dense(value) else tuple(range(value.dim()))
            leaves.append(TensorLeaf(len(inputs)))
            inputs.append(TensorSpec(name, manifest_dtype(value.dtype), shape, order, node.name in mutated))
        elif value is None or isinstance(value, (bool, int, float, str)):
            if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise CaptureError(
                    f"input {name!r} is a number that varies",
                    hint="leave it out of dynamic_shapes, or pass it as a tensor",
                )
            leaves.append(ValueLeaf(value))
        else:
            raise CaptureError(
                f"input {name!r} is a {type(value).__name__}",
                hint="inputs are tensors, None, bool, int, float or str in tuples, lists, dicts and dataclasses",
            )
    return leaves, inputs


def _output_leaves(
    graph_module: torch.fx.GraphModule, table: DimTable, results: Results
) -> tuple[list[Spec], list[TensorSpec], list[torch.fx.Node]]:
    returned: Any = graph_module.graph.output_node().args[0]
    flat = pytree.tree_leaves(list(returned), is_leaf=lambda x: x is None)
    names = structure.output_names(results.tree, flat)
    leaves: list[Spec] = []
    specs: list[TensorSpec] = []
    kept: list[torch.fx.Node] = []
    for value, name in zip(flat, names, strict=True):
        if not isinstance(value, torch.fx.Node):
            leaves.append(ValueLeaf(value))
            continue
        fake = value.meta["val"]
        if not isinstance(fake, torch.Tensor):
            raise CaptureError(
                f"{name} is a {type(fake).__name__} that is computed in the model",
                hint="return it as a tensor: torch.tensor(...) or x.new_tensor(...)",
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
    is_tensor: Sequence[bool],
    outputs: Sequence[torch.fx.Node],
) -> None:
    """Constants of the signature are compiled in: their placeholders and outputs go."""
    graph = graph_module.graph
    graph.output_node().args = (tuple(outputs),)
    for node, keep in zip(placeholders, is_tensor, strict=True):
        if keep:
            # A placeholder keeps the layout that the runtime brings inputs into.
            continue
        node.replace_all_uses_with(None)  # type: ignore[arg-type]
        graph.erase_node(node)
    graph_module.recompile()
