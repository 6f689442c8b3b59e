"""Capture: a module or function and an example call become a `Program`."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpack.building.collector import rare_collections
from aotpack.building.frames import roomy
from aotpack.errors import CaptureError
from aotpack.export.capture.absent import AbsentWeights, named_tensors
from aotpack.export.capture.dynamic_shapes import parse
from aotpack.export.capture.forward import forward
from aotpack.export.capture.forward_backward import MODE as FORWARD_BACKWARD
from aotpack.export.capture.forward_backward import forward_backward
from aotpack.export.capture.input_gradients import for_each_set, requiring
from aotpack.export.capture.joint import joint
from aotpack.export.capture.streaming import StreamedWeights, WeightFiles
from aotpack.export.capture.training import MODE as TRAIN_STEP
from aotpack.export.capture.training import training as captured_training
from aotpack.export.capture.variants import Variant, Variants, with_variants
from aotpack.export.custom_ops.triton_launches import launches_traced
from aotpack.export.diagnostics.internal_errors import reported
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.declared import Note
from aotpack.export.torch_compat.higher_order import functions_made_graphs
from aotpack.export.torch_compat.late_code import code_generated_late
from aotpack.export.torch_compat.patches import exclusive
from aotpack.export.tracing import eager
from aotpack.export.tracing.autocast import autocast_inside
from aotpack.export.tracing.caches import cross_attention_anew
from aotpack.export.tracing.interface import Call
from aotpack.export.tracing.numbers import taking_tensors
from aotpack.export.tracing.plain import from_plain, taking_plain
from aotpack.export.tracing.python_state import snapshot
from aotpack.export.tracing.same_inputs import as_one
from aotpack.export.tracing.sparse import refuse_sparse_inputs
from aotpack.export.tracing.values import normal_tensors, taking_names
from aotpack.export.training.options import TrainingOptions


class _Function(torch.nn.Module):
    """A plain function as a module, which torch.export asks for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        # torch.export names arguments after the parameters of `forward`, and expects these names for dynamic sizes.
        with contextlib.suppress(TypeError, ValueError):
            signature = inspect.signature(function)
            own = types.MethodType(_Function.forward, self)
            forward = functools.wraps(own)(lambda *args, **kwargs: function(*args, **kwargs))
            forward.__signature__ = signature  # type: ignore[attr-defined]
            self.forward = forward  # type: ignore[method-assign]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@reported("capture")
@rare_collections()
@roomy
@exclusive
@code_generated_late()
@launches_traced()
def aot_export(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "forward",
    dynamic_shapes: Any = None,
    variants: Variants | Sequence[Mapping[str, int] | Variant] | None = None,
    entry: str | None = None,
    method: str = "forward",
    weights: WeightFiles | None = None,
    loss: Callable[..., Any] | None = None,
    loss_args: Sequence[Any] = (),
    optimizer: torch.optim.Optimizer | Callable[..., None] | None = None,
    training: TrainingOptions | None = None,
    memory_budget: float = 1.0,
    input_gradients: Sequence[Sequence[str]] | None = None,
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

            `"train_step"`: a step of training (docs/training.md). The program is called with `args`, `loss_args` and
            the hyperparameters of `training`; it updates the parameters and buffers of the model and the state of the
            optimizer in the context, and returns a dict with `"loss"` and `"outputs"`. The model is in training mode.
            The program has companions, which `build_archive` puts into the same archive: `forward`, the model in
            evaluation mode, and with `TrainingOptions.accumulate` and `TrainingOptions.buckets` also `accumulate`,
            `gradients` and `apply`.
            `"forward_backward"`: two entries, `forward` and `backward` (docs/autograd.md). The forward returns what the
            model returns, and keeps what the backward reads. The backward is called with the gradients of the outputs,
            and returns a dict with `"gradients"` and `"input_gradients"` as above. The program is that of the forward;
            that of the backward is its companion. Parameters that require grad become state of the archive.
        dynamic_shapes: dynamic shapes and scalar inputs (docs/dims.md): for each argument, by name or in order, a dict
            from axes to `aotpack.Dim`, the name of a dim, or a value that torch.export accepts; for an int argument a
            `Dim`; for any scalar `aotpack.DYNAMIC`. `"auto"`: every size that the model supports is dynamic. Omitted
            axes are static. A declared dim that the model fixes is an error. `notes` of the program list ranges that
            were narrowed, with the reasons.
        variants: programs for fixed sizes, or for inputs that are one tensor, in the same entry (docs/dims.md): for
            each a `Variant`, or only the dims that it fixes, by name; `{}` is the general program. Or a `Variants`.
        entry: the name of the archive's entry. Default: the name of `method`, or `mode` if it is "joint" or
            "train_step". A backward has the name `backward`, or that of its forward with `_backward` at the end.
        method: the method of the module to capture.
        weights: a `.safetensors` file (or several, or an index) with the module's state dict. The module's parameters
            may then be on the meta device (see `without_weights`). The build reads them one at a time; the files must
            not change until then. Without `weights`, parameters and buffers may be on the meta device only for a
            code-only archive (`BuildOptions.code_only`). In both cases the program has no example call for `aotpack
            verify`, because eager never runs.
        loss: for `"train_step"`: called with the outputs of the model and `loss_args`; returns the loss, a
            floating-point tensor with one element.
        loss_args: example arguments of `loss` after the outputs, such as `(targets,)`.
        optimizer: for `"train_step"`: a `torch.optim.Optimizer` over parameters of the model; those that it does not
            have stay constants. Or a function of a parameter, its gradient and its state (a dict that is empty in the
            first step), which writes to the parameter, and whose keyword-only defaults are the hyperparameters.
        training: see `TrainingOptions`.
        memory_budget: for `"forward_backward"`: from 1, keep what makes the backward fast, to 0, keep inputs and random
            numbers alone and compute everything else again. It is torch's `activation_memory_budget`.
        input_gradients: for `"joint"`: sets of names of inputs, in place of the inputs that require grad in the example
            call. Each set is an entry of its own, `joint[x,y]` for `("x", "y")`; `Model.entry` chooses one of them
            (docs/gradients.md). The program is that of the first set and has the others as companions, which
            `build_archive` puts into the same archive.

    Raises:
        WeightsNotFoundError, WeightsFileError: a file of `weights` cannot be read.
        CaptureError: the model could not be captured. The message names the line of the model; the hint describes a
            remedy.
        InternalError: a bug in aotpack, with the place in the model if known.
    """
    if mode == TRAIN_STEP:
        if weights is not None or method != "forward" or variants is not None or input_gradients is not None:
            raise CaptureError(
                f'weights, method, variants and input_gradients are not for mode="{TRAIN_STEP}"', hint="omit them"
            )
        options = training or TrainingOptions()
        program = captured_training(
            model, args, kwargs or {}, dynamic_shapes, loss, loss_args, optimizer, options, aot_export
        )
        return replace(program, signature=replace(program.signature, name=entry or TRAIN_STEP))
    if mode not in ("forward", "joint", FORWARD_BACKWARD):
        raise CaptureError(
            f"unknown mode {mode!r}",
            hint='use "forward" (inference), "joint" (a loss and gradients), "forward_backward" (a layer of a training '
            'script) or "train_step" (with an optimizer)',
        )
    if loss is not None or loss_args or optimizer is not None or training is not None:
        raise CaptureError(
            f'loss, loss_args, optimizer and training are for mode="{TRAIN_STEP}", not {mode!r}', hint="omit them"
        )
    if memory_budget != 1 and mode != FORWARD_BACKWARD:
        raise CaptureError(f'memory_budget is for mode="{FORWARD_BACKWARD}", not {mode!r}', hint="omit it")
    if input_gradients is not None and mode != "joint":
        raise CaptureError('input_gradients is for mode="joint"', hint="omit it")
    if isinstance(args, torch.Tensor):
        raise CaptureError("args must be a tuple of arguments, got a tensor", hint="use (x,) for one argument")
    _check_call(model, args, kwargs)
    given = (model, args, kwargs, mode, dynamic_shapes, variants, entry, method, weights)
    capture = partial(_captured, *given, memory_budget=memory_budget)
    return capture() if input_gradients is None else for_each_set(input_gradients, capture)


def _captured(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    mode: str,
    dynamic_shapes: Any,
    variants: Variants | Sequence[Mapping[str, int] | Variant] | None,
    entry: str | None,
    method: str,
    weights: WeightFiles | None,
    wanted: Sequence[str] | None = None,
    same: Sequence[Sequence[str]] = (),
    memory_budget: float = 1.0,
) -> Program:
    """The program of any mode but that of a training step.

    Args:
        wanted: the inputs whose gradients the program returns; None: those that require grad.
        same: groups of names of inputs that are one tensor. The program reads the first input of a group instead of
            the others.
    """
    is_module = isinstance(model, torch.nn.Module)
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    if method != "forward":
        module = _with_method(module, method, is_module=is_module)
    function = module.forward if is_module else model
    name = type(model).__name__ if is_module else getattr(model, "__name__", "function")
    eager.check_initialized(module)
    refuse_sparse_inputs(module, (args, kwargs))
    if mode == FORWARD_BACKWARD:
        if weights is not None or variants is not None:
            raise CaptureError(f'weights and variants are not for mode="{FORWARD_BACKWARD}"', hint="omit them")
        eager.check_devices(module, (args, kwargs))
        given = tuple(args), dict(kwargs or {})
        return forward_backward(module, *given, dynamic_shapes, name, entry or method, memory_budget, aot_export)
    pytree_spec.register_dataclasses((args, kwargs))
    dynamic_shapes = _shapes_of(dynamic_shapes, module, tuple(args), dict(kwargs or {}))
    module, plain_args, plain_kwargs = taking_plain(module, tuple(args), dict(kwargs or {}))
    module, named_args, named_kwargs, restored = taking_names(module, plain_args, plain_kwargs)
    call_args, call_kwargs = eager.detached((named_args, named_kwargs))
    names = pytree_spec.positional_names(function, len(call_args))
    entry_name = entry or (mode if mode != "forward" else method)
    if wanted is not None:
        call_args, call_kwargs, suffix = requiring(call_args, call_kwargs, names, wanted)
        entry_name += suffix
    absent = _absent(module, weights, mode, is_module=is_module)
    eager.check_devices(module, (call_args, call_kwargs), without_values=absent is not None)
    shapes = parse(function, module.forward, call_args, call_kwargs, dynamic_shapes)
    with (
        functions_made_graphs(),
        autocast_inside(module),
        normal_tensors(module),
        cross_attention_anew(module) as anew,
        snapshot.watching(),
    ):
        called, args_taken, kwargs_taken = taking_tensors(module, call_args, call_kwargs, shapes.numbers)
        call = Call(args_taken, kwargs_taken, names, shapes.declared, shapes.numbers, shapes.demanded)
        if same:
            leaves = {name: leaf for leaf, name in enumerate(call.leaf_names())}
            call = replace(call, same={leaves[name]: leaves[first] for first, *others in same for name in others})
            called = as_one(called, call.args, call.kwargs, call.same)
        if absent is not None:
            with absent.stand_ins():
                fake = absent.fake_call(call_args, call_kwargs)
                program = forward(called, call, shapes.torch, name, model, fake)
            program = absent.attach(program)
        elif mode == "forward":
            program = forward(called, call, shapes.torch, name, model)
        else:
            program = joint(called, call, shapes.torch, name, model)
    if anew:
        text = "cross-attention caches that are empty in the model are computed in each call"
        program = replace(program, notes=(*program.notes, Note("capture", text)))
    program = replace(program, signature=replace(program.signature, name=entry_name))
    if isinstance(model, torch.nn.Module):
        program = replace(program, source_module=model, state_dict=module.state_dict(keep_vars=True))
    if variants is None:
        return program

    def again(new_args: Any, new_kwargs: Any, *, dynamic_shapes: Any, same: Sequence[Sequence[str]] = ()) -> Program:
        old_args, old_kwargs = restored((new_args, new_kwargs))
        given = from_plain(old_args, tuple(args)), from_plain(old_kwargs, kwargs or {})
        return _captured(model, *given, mode, dynamic_shapes, None, entry, method, weights, wanted, same)

    return with_variants(program, variants, call_args, call_kwargs, again)


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


def _absent(
    module: torch.nn.Module, weights: WeightFiles | None, mode: str, *, is_module: bool
) -> AbsentWeights | None:
    """The weights that are not in memory; None where all are."""
    if weights is None:
        meta = any(tensor.is_meta for tensor in named_tensors(module).values())
        return AbsentWeights(module) if meta and is_module and mode == "forward" else None
    if not is_module or mode != "forward":
        raise CaptureError(
            "weights can be read from files only for the forward mode of a module",
            hint="load them into the model and omit `weights`",
        )
    return StreamedWeights(module, weights)
