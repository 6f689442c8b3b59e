"""Capture: a module, function or `.pt2` file and an example call become a `Program`."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export import structure
from aotpack.export.dims import DimTable, user_dim_names
from aotpack.export.editing import as_node, bound_arguments
from aotpack.export.functional import functional_graph
from aotpack.export.program import ConstantInfo, Program, Reference
from aotpack.export.recurrent import captured_whole
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


# What torch.export appends to its messages.
_EXPORT_NOISE = (
    "\n\nThe error above occurred",
    "\nThe following call raised this error",
    "\nTo fix the error",
    "\nFor more information",
)


class _Function(torch.nn.Module):
    """A plain function as a module, which torch.export asks for. Its parameters' names stay visible."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def aot_export(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "forward",
    dynamic_shapes: Any = None,
    name: str | None = None,
) -> Program:
    """Captures one call of `model` ahead of time.

    Args:
        model: a module (put it in `eval()` mode for inference) or a plain function over tensors.
        args: example positional arguments: tensors (CPU), None, bool, int, float, str, and tuples, lists, dicts with
            string keys, namedtuples or dataclasses of these. Everything that is no tensor becomes a constant of the
            signature.
        kwargs: example keyword arguments, likewise.
        mode: `"forward"`.
        dynamic_shapes: as for `torch.export.export`: for each argument, axis → `torch.export.Dim`. Dims keep the
            names given there. A size that no dim names is static.
        name: the model's name in the archive; by default the class's or function's.

    Raises:
        CaptureError: the model could not be captured; the message names the line of the model, the hint the way out.
    """
    if mode != "forward":
        raise CaptureError(f"mode {mode!r} is not known", hint='this version captures inference: mode="forward"')
    if isinstance(args, torch.Tensor):
        raise CaptureError("args must be a tuple of arguments, got a tensor", hint="write (x,) for one argument")
    is_module = isinstance(model, torch.nn.Module)
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    function = module.forward if is_module else model
    call_args, call_kwargs = _detached(tuple(args)), _detached(dict(kwargs or {}))
    structure.register_dataclasses((call_args, call_kwargs))
    _check_devices(module, (call_args, call_kwargs))
    outputs = _run_eager(module, call_args, call_kwargs)
    structure.register_dataclasses(outputs)
    if not is_module and dynamic_shapes is not None:
        dynamic_shapes = _shapes_for_function(function, call_args, dynamic_shapes)
    exported = _export(module, call_args, call_kwargs, dynamic_shapes)
    names = structure.positional_names(function, len(call_args))
    dims = user_dim_names(function if is_module else module.forward, call_args, call_kwargs, dynamic_shapes)
    default = type(model).__name__ if is_module else getattr(model, "__name__", "function")
    return _program(exported, name or default, call_args, call_kwargs, names, dims, outputs)


def load_exported(path: str | os.PathLike[str], *, name: str | None = None) -> Program:
    """The program in a `.pt2` file that `torch.export.save` wrote. Its example inputs must have been saved with it.

    Raises:
        CaptureError: the file is no exported program, or carries no example inputs.
    """
    try:
        exported = torch.export.load(path)
    except Exception as error:
        raise CaptureError(
            f"{os.fspath(path)} could not be read as an exported program: {error}",
            hint="write it by torch.export.save(torch.export.export(model, args), path)",
        ) from error
    if exported.example_inputs is None:
        raise CaptureError(f"{os.fspath(path)} carries no example inputs", hint="export and save the program again")
    args, kwargs = exported.example_inputs
    args, kwargs = _detached(tuple(args)), _detached(dict(kwargs))
    outputs = _run_eager(exported.module(), args, kwargs)
    names = _names_of_exported(exported, len(args))
    return _program(exported, name or Path(path).stem, args, kwargs, names, None, outputs)


# ---- the steps ------------------------------------------------------------------------------------------------------


def _detached(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), value)


def _check_devices(module: torch.nn.Module, example: Any) -> None:
    tensors = [t for t in pytree.tree_leaves(example) if isinstance(t, torch.Tensor)]
    for tensor in [*tensors, *module.parameters(), *module.buffers()]:
        if tensor.device.type != "cpu":
            raise CaptureError(
                f"a tensor of the model or its example inputs is on {tensor.device}",
                hint="move the model and the inputs to the CPU: model.cpu()",
            )


def _run_eager(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # State that forward mutates is put back: capture must see the model as the user gave it.
    before = {key: value.clone() for key, value in module.named_buffers()}
    fresh_args, fresh_kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.clone(), (args, kwargs))
    try:
        with torch.no_grad():
            return module(*fresh_args, **fresh_kwargs)
    except Exception as error:
        raise CaptureError(
            f"the example call itself fails: {type(error).__name__}: {error}{_model_line(error)}",
            hint="check the example inputs by calling the model with them",
        ) from error
    finally:
        with torch.no_grad():
            for key, value in module.named_buffers():
                if key in before and not torch.equal(value, before[key]):
                    value.copy_(before[key])


def _shapes_for_function(function: Callable[..., Any], args: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    """The wrapper module takes `*args`: shapes by parameter name become a tuple under that name."""
    if not isinstance(dynamic_shapes, dict):
        return {"args": tuple(dynamic_shapes)}
    names = structure.positional_names(function, len(args))
    known = {"args": tuple(dynamic_shapes.get(name) for name in names)}
    return known | {key: value for key, value in dynamic_shapes.items() if key not in names}


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    try:
        with warnings.catch_warnings(), torch.no_grad(), captured_whole():
            warnings.simplefilter("ignore")
            return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        raise CaptureError(_export_message(error), hint=_export_hint(str(error))) from error


def _export_message(error: Exception) -> str:
    text = str(error).strip()
    for noise in _EXPORT_NOISE:
        text = text.partition(noise)[0]
    return f"the model cannot be captured: {text or type(error).__name__}{_model_line(error)}"


def _export_hint(text: str) -> str:
    if "data-dependent" in text or "GuardOnDataDependent" in text or "vmap" in text:
        return (
            "Python control flow on the values of tensors cannot be captured: use torch.where or torch.cond, "
            "or bound a size that comes out of data by torch._check"
        )
    if "Constraints violated" in text or "onstraint" in text:
        return "change dynamic_shapes as the message suggests, or make that dim static"
    return "torch.export.export(model, args) shows the same error with torch's own advice"


def _model_line(error: BaseException) -> str:
    """` (model.py:12, in forward: x = y)`: the innermost frame outside torch and this package."""
    inside = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)), "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(inside) and not frame.filename.endswith(("contextlib.py", "_ops.py")):
            return f"\n  at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
    return ""


def _names_of_exported(exported: ExportedProgram, count: int) -> list[str | None]:
    """Argument names out of the placeholders, which torch.export names after them; nested ones have no single name."""
    args_tree = exported.call_spec.in_spec.children()[0]
    user_inputs = [str(name) for name in exported.graph_signature.user_inputs]
    names: list[str | None] = []
    position = 0
    for child in args_tree.children():
        name = user_inputs[position] if child.is_leaf() and position < len(user_inputs) else ""
        names.append(name if name.isidentifier() else None)
        position += child.num_leaves
    return [*names, *([None] * count)][:count]


def _program(
    exported: ExportedProgram,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str | None],
    dims: Sequence[Mapping[int, str]] | None,
    outputs: Any,
) -> Program:
    # torch.export puts keyword arguments into the order of the signature.
    kwargs_order = exported.call_spec.in_spec.children()[1].context or []
    kwargs = {key: kwargs[key] for key in kwargs_order}
    flat, _ = pytree.tree_flatten((args, kwargs))
    leaf_names = structure.leaf_names(args, kwargs, names)
    if dims is None or len(dims) != len(flat):
        dims = [{} for _ in flat]
    exported, graph_module = functional_graph(exported)
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    table = DimTable(exported.range_constraints)
    is_tensor = [isinstance(value, torch.Tensor) for value in flat]
    tensors = [
        (leaf, node.meta["val"]) for leaf, node, keep in zip(leaf_names, placeholders, is_tensor, strict=True) if keep
    ]
    table.name_inputs(tensors, [names for names, keep in zip(dims, is_tensor, strict=True) if keep])
    mutated = _mutated_inputs(graph_module)
    leaves, inputs = _input_leaves(flat, leaf_names, placeholders, table, mutated)
    in_spec = structure.call_spec(exported.call_spec.in_spec, iter(leaves), names)
    out_leaves, out_specs, kept = _output_leaves(exported, graph_module, table)
    out_spec = structure.to_spec(exported.call_spec.out_spec, iter(out_leaves), "the result")
    _drop_constants(graph_module, placeholders, is_tensor, kept)
    signature = Signature("forward", table.dims(), tuple(inputs), tuple(out_specs), in_spec, out_spec)
    flat_outputs = [value for value in pytree.tree_leaves(outputs) if isinstance(value, torch.Tensor)]
    reference = Reference(
        tuple(_dense(value) for value in flat if isinstance(value, torch.Tensor)),
        tuple(value.detach() for value in flat_outputs),
    )
    constants = {
        attribute: ConstantInfo("buffer", (attribute,), True) for attribute in _mutated_attributes(graph_module)
    }
    return Program(
        name,
        graph_module,
        signature,
        constants,
        None if _draws_random_numbers(graph_module) or constants or mutated else reference,
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


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.permute(memory_order(tensor)).is_contiguous()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if _is_dense(tensor) else tensor.contiguous()


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
            order = memory_order(value) if _is_dense(value) else tuple(range(value.dim()))
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
    exported: ExportedProgram, graph_module: torch.fx.GraphModule, table: DimTable
) -> tuple[list[Spec], list[TensorSpec], list[torch.fx.Node]]:
    returned: Any = graph_module.graph.output_node().args[0]
    results = pytree.tree_leaves(list(returned), is_leaf=lambda x: x is None)
    names = structure.output_names(exported.call_spec.out_spec, results)
    leaves: list[Spec] = []
    specs: list[TensorSpec] = []
    kept: list[torch.fx.Node] = []
    for value, name in zip(results, names, strict=True):
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
        leaves.append(TensorLeaf(len(specs)))
        specs.append(TensorSpec(name, manifest_dtype(fake.dtype), shape, memory_order(fake)))
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
