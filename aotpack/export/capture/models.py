"""Capture: a module, function or `.pt2` file and an example call become a `Program`."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.capture.dynamic_shapes import parse
from aotpack.export.capture.model_files import foreign
from aotpack.export.capture.streaming import FakeCall, StreamedWeights, WeightFiles
from aotpack.export.capture.variants import Variants, with_variants
from aotpack.export.diagnostics.internal_errors import reported, summary
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.ops.recurrent import captured_whole
from aotpack.export.probing.probe import probed
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.declared import Note
from aotpack.export.symbolic_shapes.deserialized_guards import restore_guards
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.patches import exclusive
from aotpack.export.tracing import eager, gradients, open_results
from aotpack.export.tracing.aliases import unify_aliases
from aotpack.export.tracing.autocast import autocast_inside
from aotpack.export.tracing.caches import cross_attention_anew
from aotpack.export.tracing.functional import functional_graph
from aotpack.export.tracing.interface import Call, Results, make_program, memory_order
from aotpack.export.tracing.joint import joint_graph, portable_operators
from aotpack.export.tracing.numbers import constant, taking_tensors
from aotpack.export.tracing.plain import from_plain, returning_plain, taking_plain
from aotpack.export.tracing.python_state import snapshot
from aotpack.export.tracing.quiet import torch_quiet
from aotpack.export.tracing.sparse import refuse_sparse_inputs, refuse_sparse_values
from aotpack.export.tracing.state_analysis import analysed
from aotpack.export.tracing.trace import message, trace
from aotpack.export.tracing.values import normal_tensors, taking_names

__all__ = ["aot_export", "load_exported"]


class _Function(torch.nn.Module):
    """A plain function as a module, which torch.export asks for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        # torch.export names arguments after the parameters of `forward`, and asks so for sizes that vary.
        with contextlib.suppress(TypeError, ValueError):
            signature = inspect.signature(function)
            own = types.MethodType(_Function.forward, self)
            forward = functools.wraps(own)(lambda *args, **kwargs: function(*args, **kwargs))
            forward.__signature__ = signature  # type: ignore[attr-defined]
            self.forward = forward  # type: ignore[method-assign]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@reported("capture")
@exclusive
def aot_export(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "forward",
    dynamic_shapes: Any = None,
    entry: str | None = None,
    method: str = "forward",
    name: str | None = None,
    weights: WeightFiles | None = None,
    variants: Variants | None = None,
    select: str = "declared",
) -> Program:
    """Captures one call of `model` ahead of time.

    Args:
        model: a module (in `eval()` mode for inference) or a function of tensors.
        args: example positional arguments: tensors (CPU), None, bool, int, float, str, and tuples, lists, dicts,
            namedtuples or dataclasses of these. Values that are not tensors become constants of the signature, except
            for the scalars in `dynamic_shapes`. Dtypes, devices, layouts, memory formats and members of enums become
            constants by name. Caches of transformers and registered pytree nodes are plain containers in the archive
            and in `dynamic_shapes`: `{"key_cache": [...], "value_cache": [...]}`.
        kwargs: example keyword arguments, likewise.
        mode: `"forward"`: the program returns what the model returns.
            `"joint"`: it also computes the backward. The first tensor that the model returns is the loss, a
            floating-point tensor with one element. The program returns a dict:

            - `"outputs"`: the outputs of the model;
            - `"gradients"`: parameter name → gradient of the loss, with the shape, dtype and layout of the parameter,
              for each parameter that requires grad, by its name in `named_parameters()`; None if the loss does not
              depend on it;
            - `"input_gradients"`: input name → gradient, for the tensors of the example call that require grad; the key
              is absent if there are none.

            Gradients are not accumulated: each call returns new gradients, which are not differentiable.
        dynamic_shapes: dynamic shapes and scalar inputs (docs/dims.md): for each argument, by name or in order, a dict
            from axes to `aotpack.Dim`, the name of a dim, or a value that torch.export accepts; for an int argument a
            `Dim`; for any scalar `aotpack.DYNAMIC`. `"auto"`: every size that the model supports is dynamic. Omitted
            axes are static. A declared dim that the model fixes is an error. `notes` of the program list ranges that
            were narrowed, with the reasons.
        entry: the name of the archive's entry. Default: the name of `method`, or `mode` if it is not "forward".
        method: the method of the module to capture.
        name: the name of the model in the archive. Default: the name of the class or function.
        weights: a `.safetensors` file (or several, or an index) with the module's state dict. The module's parameters
            may then be on the meta device (see `without_weights`). The build reads them one at a time; the files must
            not change until then. Such a program has no example call for `aotpack verify`, because eager never runs.

    Raises:
        WeightsNotFoundError, WeightsFileError: a file of `weights` cannot be read.
        CaptureError: the model could not be captured. The message names the line of the model; the hint describes a
            remedy.
        InternalError: a bug in aotpack, with the place in the model if known.
    """
    if mode not in ("forward", "joint"):
        raise CaptureError(f"unknown mode {mode!r}", hint='use "forward" (inference) or "joint" (a loss and gradients)')
    if isinstance(args, torch.Tensor):
        raise CaptureError("args must be a tuple of arguments, got a tensor", hint="use (x,) for one argument")
    _check_call(model, args, kwargs)
    is_module = isinstance(model, torch.nn.Module)
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    if method != "forward":
        module = _with_method(module, method, is_module=is_module)
    function = module.forward if is_module else model
    eager.check_initialized(module)
    refuse_sparse_inputs(module, (args, kwargs))
    pytree_spec.register_dataclasses((args, kwargs))
    dynamic_shapes = _shapes_of(dynamic_shapes, module, tuple(args), dict(kwargs or {}))
    module, plain_args, plain_kwargs = taking_plain(module, tuple(args), dict(kwargs or {}))
    module, named_args, named_kwargs, restored = taking_names(module, plain_args, plain_kwargs)
    call_args, call_kwargs = eager.detached((named_args, named_kwargs))
    streamed = _streamed(module, weights, mode, is_module=is_module)
    if streamed is None:
        eager.check_devices(module, (call_args, call_kwargs))
    shapes = parse(function, module.forward, call_args, call_kwargs, dynamic_shapes)
    default = type(model).__name__ if is_module else getattr(model, "__name__", "function")
    with (
        autocast_inside(module),
        normal_tensors(module),
        cross_attention_anew(module) as anew,
        snapshot.watching(),
    ):
        called, args_taken, kwargs_taken = taking_tensors(module, call_args, call_kwargs, shapes.numbers)
        names = pytree_spec.positional_names(function, len(call_args))
        call = Call(args_taken, kwargs_taken, names, shapes.declared, shapes.numbers, shapes.demanded)
        if streamed is not None:
            with streamed.stand_ins():
                fake = streamed.fake_call(call_args, call_kwargs)
                program = _forward(called, call, shapes.torch, name or default, model, fake)
            program = streamed.attach(program)
        elif mode == "forward":
            program = _forward(called, call, shapes.torch, name or default, model)
        else:
            program = _joint(called, call, shapes.torch, name or default, model)
    if anew:
        text = "cross-attention caches that are empty in the model are computed in each call"
        program = replace(program, notes=(*program.notes, Note("capture", text)))
    default_entry = mode if mode != "forward" else method
    program = replace(program, signature=replace(program.signature, name=entry or default_entry))
    if isinstance(model, torch.nn.Module):
        program = replace(program, source_module=model, state_dict=module.state_dict(keep_vars=True))
    if variants is None:
        return program

    def again(new_args: Any, new_kwargs: Any, *, dynamic_shapes: Any) -> Program:
        old_args, old_kwargs = restored((new_args, new_kwargs))
        given = from_plain(old_args, tuple(args)), from_plain(old_kwargs, kwargs or {})
        options: Any = {"entry": entry, "method": method, "name": name, "weights": weights}
        return aot_export(model, *given, mode=mode, dynamic_shapes=dynamic_shapes, **options)

    return with_variants(program, variants, select, call_args, call_kwargs, again)


def _shapes_of(given: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dynamic_shapes` as a structure, of what torch.export has classes for."""
    if not isinstance(given, (torch.export.ShapesCollection, torch.export.AdditionalInputs)):
        return given
    try:
        return given.dynamic_shapes(module, args, kwargs)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise CaptureError(
            f"the {type(given).__name__} does not match the example call: {error}",
            hint="pass dynamic_shapes by argument name (docs/dims.md)",
        ) from error


def _check_call(model: Any, args: Any, kwargs: Any) -> None:
    if isinstance(model, type):
        raise CaptureError(
            f"the model is the class {model.__name__}, not a module", hint=f"make one: {model.__name__}(…)"
        )
    if isinstance(model, ExportedProgram):
        raise CaptureError(
            "the model is an ExportedProgram, which cannot be called",
            hint="capture `program.module()`; use load_exported(path) for a file written by torch.export.save",
        )
    if not callable(model):
        raise CaptureError(
            f"the model is a {type(model).__name__}", hint="pass a torch.nn.Module or a function of tensors"
        )
    if not isinstance(args, (tuple, list)):
        raise CaptureError(
            f"args must be a tuple of arguments, got a {type(args).__name__}", hint="use (x,) for one argument"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise CaptureError(
            f"kwargs must be a dict of arguments by name, got a {type(kwargs).__name__}", hint='write {"mask": mask}'
        )


def _with_method(module: torch.nn.Module, method: str, *, is_module: bool) -> torch.nn.Module:
    """The module over the same parameters, buffers and children, whose forward is another of its methods."""
    function = getattr(type(module), method, None)
    if not is_module or not callable(function):
        raise CaptureError(f"{type(module).__name__} has no method {method!r} to capture")
    other = copy.copy(module)
    # Its own dictionary: the method is to be there only, and what is set while tracing is not to be lost in the copy.
    other.__dict__ = module.__dict__ | {"forward": types.MethodType(function, other)}
    return other


def _streamed(
    module: torch.nn.Module, weights: WeightFiles | None, mode: str, *, is_module: bool
) -> StreamedWeights | None:
    if weights is None:
        return None
    if not is_module or mode != "forward":
        raise CaptureError(
            "weights can be read from files only for the forward mode of a module",
            hint="load them into the model and omit `weights`",
        )
    return StreamedWeights(module, weights)


@reported("capture")
@exclusive
def load_exported(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    variants: Variants | None = None,
    select: str = "declared",
) -> Program:
    """Loads the program in a `.pt2` file written by `torch.export.save`. The file must contain example inputs.

    `name`, `variants` and `select` are as in `aot_export`.

    Raises:
        CaptureError: the file is not an exported program or has no example inputs, or a variant cannot be captured.
        OSError: the file cannot be read.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise CaptureError(
            f"load_exported expects a file, but the path is a {type(path).__name__}",
            hint="save the program with torch.export.save(program, path), or capture program.module() with aot_export",
        )
    other = foreign(path)
    if other is not None:
        raise CaptureError(f"{os.fspath(path)} is not an exported program but {other.what}", hint=other.hint)
    try:
        with torch_quiet():
            exported = torch.export.load(path)
    except Exception as error:
        raise CaptureError(
            f"{os.fspath(path)} could not be read as an exported program: {summary(error)}",
            hint="save it again with torch.export.save(torch.export.export(model, args), path), with this version of "
            f"torch ({torch.__version__})",
        ) from error
    if exported.example_inputs is None:
        raise CaptureError(f"{os.fspath(path)} contains no example inputs", hint="export and save the program again")
    restore_guards(exported)
    args, kwargs = exported.example_inputs
    args, kwargs = eager.detached((tuple(args), dict(kwargs)))
    with open_results.watched() as open_reasons:
        outputs = eager.run(exported.module(), args, kwargs)
    call = Call(args, kwargs, _names_of_exported(exported, len(args)), numbers=_numbers_of_exported(exported))
    program = _forward_program(exported, call, name or Path(path).stem, outputs)
    program = open_results.noted(replace(program, state_dict=dict(exported.state_dict)), open_reasons)
    if variants is None:
        return program
    again = partial(aot_export, exported.module(), name=program.name)
    return with_variants(program, variants, select, args, kwargs, again)


# ---- forward --------------------------------------------------------------------------------------------------------


def _forward(
    module: torch.nn.Module,
    call: Call,
    dynamic_shapes: Any,
    name: str,
    model: object,
    fake: FakeCall | None = None,
) -> Program:
    """The program of a forward; `fake` makes the example call for a model whose weights are not in memory."""
    open_reasons: list[str] = []
    if fake is not None:
        module, outputs = returning_plain(module, fake.answer())
        held = analysed(model, module, fake.arguments, fake, fake.provenance)
    else:
        with open_results.watched() as open_reasons:
            module, outputs = _answered(module, call)
        held = analysed(model, module, call.leaves(), partial(eager.again, module, call.args, call.kwargs))
    traced = partial(_traced_forward, module, call, dynamic_shapes, name)
    values = fake is None
    if held is None:
        return traced(outputs, open_reasons, values=values)
    with held.installed(module):
        if fake is None:
            outputs = eager.run(module, call.args, call.kwargs)
        return held.named(traced(outputs, open_reasons, values=values))


def _traced_forward(
    module: torch.nn.Module,
    call: Call,
    dynamic_shapes: Any,
    name: str,
    outputs: Any,
    open_reasons: list[str],
    *,
    values: bool,
) -> Program:
    pytree_spec.register_dataclasses(outputs)
    # The whole recurrent layer has no backward.
    how = portable_operators() if gradients.takes_gradients(module) else captured_whole()
    with torch.no_grad(), how:
        traced = trace(module, call, dynamic_shapes)
    program = _forward_program(traced.exported, call, name, outputs)
    program = open_results.noted(replace(program, notes=(*traced.notes, *program.notes)), open_reasons)
    return probed(program, _in_order(call, traced.exported), partial(eager.leaves, module), module, values=values)


def _answered(module: torch.nn.Module, call: Call) -> tuple[torch.nn.Module, Any]:
    """What the example call returns, and the module as it must be called: one that computes gradients, with these
    enabled.
    """
    with gradients.watched() as seen:
        try:
            outputs = eager.run(module, call.args, call.kwargs)
        except CaptureError:
            if not seen.any:
                raise
        if seen.any:
            module = gradients.with_gradients(module)
            outputs = eager.run(module, call.args, call.kwargs)
        return returning_plain(module, outputs)


def _forward_program(exported: ExportedProgram, call: Call, name: str, outputs: Any) -> Program:
    refuse_sparse_values(exported)
    unify_aliases(exported)
    with shape_env.sizes_from_zero(), shape_env.lines_of_the_model():
        exported, graph_module = functional_graph(exported)
    results = Results(exported.call_spec.out_spec, pytree.tree_leaves(outputs), {})
    return make_program("forward", name, exported, graph_module, _in_order(call, exported), results)


# ---- forward and backward -------------------------------------------------------------------------------------------


def _joint(module: torch.nn.Module, call: Call, dynamic_shapes: Any, name: str, model: object) -> Program:
    with open_results.watched() as open_reasons:
        answer = eager.run_joint(module, call.args, call.kwargs)
        plain, _ = returning_plain(module, answer.outputs)
        if plain is not module:
            module, answer = plain, eager.run_joint(plain, call.args, call.kwargs)
    again = partial(eager.again, module, call.args, call.kwargs, gradients=True)
    held = analysed(model, module, call.leaves(), again)
    if held is None:
        return _traced_joint(module, call, dynamic_shapes, name, answer, open_reasons)
    with held.installed(module):
        answer = eager.run_joint(module, call.args, call.kwargs)
        return held.named(_traced_joint(module, call, dynamic_shapes, name, answer, open_reasons))


def _traced_joint(
    module: torch.nn.Module,
    call: Call,
    dynamic_shapes: Any,
    name: str,
    answer: eager.JointAnswer,
    open_reasons: list[str],
) -> Program:
    with torch.enable_grad(), portable_operators():
        traced = trace(module, call, dynamic_shapes)
    exported = traced.exported
    refuse_sparse_values(exported)
    unify_aliases(exported)
    ordered = _in_order(call, exported)
    names = call.leaf_names()
    known = dict(module.named_parameters())
    gradients: dict[str, dict[str, torch.Tensor | None]] = {"gradients": answer.parameters}
    if answer.inputs:
        gradients["input_gradients"] = {names[i]: gradient for i, gradient in answer.inputs.items()}
    parameters = _present(answer.parameters)
    inputs = _present(gradients.get("input_gradients", {}))
    positions = [ordered.leaf_names().index(key) for key in inputs]
    try:
        with warnings.catch_warnings(), shape_env.sizes_from_zero(), shape_env.lines_of_the_model():
            warnings.simplefilter("ignore")
            graph_module, numbers = joint_graph(exported, answer.loss, [known[key] for key in parameters], positions)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"AOTAutograd cannot trace the backward: {type(error).__name__}: {message(error)}",
            hint="look for an operator whose backward torch cannot trace, and replace it; "
            'mode="forward" captures the model without its backward',
        ) from error
    out_spec = exported.call_spec.out_spec
    outputs = pytree.tree_unflatten(pytree.tree_leaves(answer.outputs), out_spec)
    value = {"outputs": outputs, **gradients}
    _return_absent(graph_module, out_spec.num_leaves, pytree.tree_leaves(gradients))
    orders = {f"output.gradients.{key}": memory_order(known[key]) for key in parameters}
    results = Results(pytree.tree_structure(value), pytree.tree_leaves(value), orders, numbers)
    program = make_program("joint", name, exported, graph_module, ordered, results)
    program = open_results.noted(replace(program, notes=(*traced.notes, *program.notes)), open_reasons)
    return probed(program, ordered, partial(_joint_leaves, module), module, writes=False)


def _joint_leaves(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    answer = eager.run_joint(module, args, kwargs)
    inputs = [gradient for _, gradient in sorted(answer.inputs.items())]
    return [*pytree.tree_leaves(answer.outputs), *answer.parameters.values(), *inputs]


def _present(gradients: Mapping[str, torch.Tensor | None]) -> list[str]:
    return [key for key, gradient in gradients.items() if gradient is not None]


def _return_absent(graph_module: torch.fx.GraphModule, outputs: int, gradients: Sequence[torch.Tensor | None]) -> None:
    """Puts None among the results of the graph where eager has no gradient."""
    output = graph_module.graph.output_node()
    returned: Any = output.args[0]
    computed = iter(returned[outputs:])
    output.args = ((*returned[:outputs], *(None if g is None else next(computed) for g in gradients)),)
    graph_module.recompile()


# ---- what both share ------------------------------------------------------------------------------------------------


def _in_order(call: Call, exported: ExportedProgram) -> Call:
    """The call with keyword arguments in the order of the signature, into which torch.export puts them."""
    return call.in_order(exported.call_spec.in_spec.children()[1].context or [])


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


def _numbers_of_exported(exported: ExportedProgram) -> dict[int, str]:
    """The int arguments that vary, by leaf of the example call."""
    names = exported.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in exported.graph.find_nodes(op="placeholder")}
    known = [values.get(name) if isinstance(name, str) else None for name in names]
    return {i: "int" for i, v in enumerate(known) if isinstance(v, torch.SymInt) and constant(v) is None}
