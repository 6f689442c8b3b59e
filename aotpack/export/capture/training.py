"""Captures a training step: the entries that update the parameters, and the model in evaluation mode."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from aotpack.errors import CaptureError
from aotpack.export.diagnostics import model_lines
from aotpack.export.ir import pytree_spec
from aotpack.export.ir.program import Program
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing.state import state_put_back
from aotpack.export.training.buckets import DEFAULT_BYTES, Slot, assigned, flat
from aotpack.export.training.entries import (
    BUCKETS,
    OPTIMIZER,
    Accumulate,
    Apply,
    ApplyBuckets,
    Gradients,
    Training,
    TrainStep,
    buffers,
    checked_loss,
)
from aotpack.export.training.optimizer_state import initial_state
from aotpack.export.training.options import TrainingOptions
from aotpack.export.training.tied import untied
from aotpack.export.training.update import FunctionOptimizer
from aotpack.spec import DYNAMIC

MODE = "train_step"


def training(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    loss: Callable[..., Any] | None,
    loss_args: Sequence[Any],
    optimizer: Any,
    options: TrainingOptions,
    capture: Callable[..., Program],
) -> Program:
    """The program of `train_step`, with the other entries of the archive as its companions.

    `capture` is `aot_export` with what holds for all entries.

    Raises:
        CaptureError: see `aot_export`.
    """
    _check(model, args, loss, loss_args, options)
    assert loss is not None
    optimizer = _optimizer(optimizer, model)
    values = _hyperparameters(optimizer, options)
    parameters = dict(model.named_parameters())
    gradients = _example_gradients(model, loss, args, kwargs, loss_args)
    state = initial_state(optimizer, parameters, [name for name in parameters if name in gradients])
    slots, example = _buckets(gradients, state.names(), options)
    del gradients
    holder = buffers(state, options, parameters)
    names = _names(model, args, kwargs, loss, loss_args, options)
    count = len(args) + len(loss_args)
    examples, inputs = names[:count], names[count:]
    shapes = _by_name(dynamic_shapes, [*examples, *kwargs])
    numbers = {name: pytree.tree_map(lambda _: DYNAMIC, values[name]) for name in inputs}
    passed = [values[name] for name in inputs]
    programs: list[Program] = []

    def add(name: str, made: nn.Module, given: Sequence[Any], keywords: Mapping[str, Any], own: Any) -> None:
        program = capture(made, tuple(given), keywords, entry=name, dynamic_shapes=own or None)
        programs.append(replace(program, name=type(model).__name__))

    with untied(model) as tied:
        shared = Training(model, loss, (len(args), len(loss_args)), tied, optimizer, state, options, holder, slots)
        step = TrainStep(shared, _parameters(names, kwargs))
        add(MODE, step, (*args, *loss_args, *passed), kwargs, {**shapes, **numbers})
        if options.accumulate is not None:
            add("accumulate", Accumulate(shared, _parameters(examples, kwargs)), (*args, *loss_args), kwargs, shapes)
        if slots:
            add("gradients", Gradients(shared, _parameters(examples, kwargs)), (*args, *loss_args), kwargs, shapes)
            apply = ApplyBuckets(shared, _parameters([BUCKETS, *inputs], {}))
            add("apply", apply, [example, *passed], {}, numbers)
        elif options.accumulate is not None:
            add("apply", Apply(shared, _parameters(inputs, {})), passed, {}, numbers)
    with _evaluating(model):
        # Sizes of nested arguments have names such as "batch.ids".
        roots = {*names[: len(args)], *kwargs}
        own = {name: shape for name, shape in shapes.items() if str(name).partition(".")[0] in roots}
        add("forward", model, args, kwargs, own)
    return replace(programs[0], companions=tuple(programs[1:]))


def _buckets(
    gradients: Mapping[str, torch.Tensor], names: Collection[str], options: TrainingOptions
) -> tuple[dict[str, Slot], dict[str, torch.Tensor]]:
    """The slots of the gradients of these parameters, and the buckets of the example call; without buckets nothing."""
    if not options.buckets:
        return {}, {}
    limit = DEFAULT_BYTES if options.buckets is True else options.buckets
    slots = assigned({name: gradient for name, gradient in gradients.items() if name in names}, limit)
    return slots, flat(slots, gradients)


def _check(model: Any, args: Any, loss: Any, loss_args: Any, options: TrainingOptions) -> None:
    if not isinstance(model, nn.Module):
        raise CaptureError(
            f'mode="{MODE}" trains a torch.nn.Module, got a {type(model).__name__}', hint="put it into a module"
        )
    if not callable(loss):
        raise CaptureError(
            f'mode="{MODE}" needs `loss`, a function of the outputs of the model and of `loss_args`',
            hint="for example loss=torch.nn.functional.cross_entropy, loss_args=(targets,)",
        )
    if not isinstance(args, (tuple, list)) or not isinstance(loss_args, (tuple, list)):
        raise CaptureError("args and loss_args must be tuples of arguments", hint="use (x,) for one argument")
    if not model.training:
        raise CaptureError(
            "the model is in evaluation mode",
            hint="call model.train(); modules that are to stay in evaluation mode, such as frozen batch norms, may",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CaptureError("no parameter of the model requires grad", hint="call requires_grad_() on those to train")
    if isinstance(options.hyperparameters, str):
        raise CaptureError("hyperparameters is a string", hint=f"use a tuple: ({options.hyperparameters!r},)")
    if any(name.partition(".")[0] == OPTIMIZER for name in _names_inside(model)):
        raise CaptureError(
            f"the model has an attribute {OPTIMIZER!r}, the name of the optimizer's state", hint="rename it"
        )
    if options.accumulate not in (None, "mean", "sum"):
        raise CaptureError(f"accumulate is {options.accumulate!r}", hint='use "mean", "sum" or None')
    if not isinstance(options.buckets, int) or options.buckets < 0:
        raise CaptureError(f"buckets is {options.buckets!r}", hint="use a number of bytes, True or False")
    if options.buckets and BUCKETS in options.hyperparameters:
        raise CaptureError(
            f"the hyperparameter {BUCKETS!r} has the name of an argument of `apply`", hint="rename the hyperparameter"
        )
    for name in ("clip_norm", "clip_value"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise CaptureError(f"{name} is {value!r}", hint="use a positive number, or None")


def _names_inside(model: nn.Module) -> Iterator[str]:
    for members in (model.named_children(), model.named_parameters(), model.named_buffers()):
        yield from (name for name, _ in members)


def _optimizer(given: Any, model: nn.Module) -> Optimizer:
    if isinstance(given, Optimizer):
        return given
    if callable(given) and not isinstance(given, type):
        return FunctionOptimizer([p for p in model.parameters() if p.requires_grad], given)
    raise CaptureError(
        f'mode="{MODE}" needs `optimizer`, got {given!r}',
        hint="pass a torch.optim.Optimizer over the parameters of the model, or a function of a parameter, its "
        "gradient and its state",
    )


def _hyperparameters(optimizer: Optimizer, options: TrainingOptions) -> dict[str, Any]:
    """The values of the hyperparameters that calls pass, as these pass them."""
    result: dict[str, Any] = {}
    for key in options.hyperparameters:
        values = [group.get(key) for group in optimizer.param_groups]
        for value in values:
            items = value if isinstance(value, (tuple, list)) else [value]
            if not all(_is_number(item) for item in items):
                raise CaptureError(
                    f"the hyperparameter {key!r} is {value!r} in the optimizer, which cannot be an input",
                    hint=f"floats and tuples of floats can be: {', '.join(map(repr, _possible(optimizer)))}",
                )
        floats = [pytree.tree_map(float, value) for value in values]
        result[key] = floats[0] if len(floats) == 1 else floats
    return result


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.is_floating_point()
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _possible(optimizer: Optimizer) -> list[str]:
    group = optimizer.param_groups[0]
    return [key for key, value in group.items() if isinstance(value, (float, tuple))]


def _example_gradients(
    model: nn.Module, loss: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], loss_args: Sequence[Any]
) -> dict[str, torch.Tensor]:
    """The gradients of the example call, by parameter, in the order in which the backward finishes them.

    Raises:
        CaptureError: there is no loss, or a gradient is sparse.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    copied = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (tuple(args), dict(kwargs), loss_args))
    with torch.random.fork_rng(devices=[]), state_put_back(model), torch.enable_grad():
        given, keywords, targets = copied
        try:
            value = checked_loss(loss(model(*given, **keywords), *targets))
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(
                f"the example call itself fails: {type(error).__name__}: {error}{model_lines.at_line(error)}",
                hint="call loss(model(*args), *loss_args) to check the model and the loss",
            ) from error
        finished: dict[str, torch.Tensor] = {}
        with contextlib.ExitStack() as stack:
            for name, parameter in named.items():
                hook = parameter.register_hook(functools.partial(finished.__setitem__, name))
                stack.callback(hook.remove)
            torch.autograd.grad(value, list(named.values()), torch.ones_like(value), allow_unused=True)
    for name, gradient in finished.items():
        if gradient.is_sparse:
            raise CaptureError(
                f"the gradient of {name!r} is sparse", hint="make the embedding with sparse=False: gradients are dense"
            )
    return finished


# ---- the signature --------------------------------------------------------------------------------------------------


def _names(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    loss: Callable[..., Any],
    loss_args: Sequence[Any],
    options: TrainingOptions,
) -> list[str]:
    """The names of the positional arguments: of the model, of the loss, and hyperparameters."""
    function = loss.forward if isinstance(loss, nn.Module) else loss
    of_model = pytree_spec.positional_names(model.forward, len(args))
    of_loss = pytree_spec.positional_names(function, len(loss_args) + 1)[1:]
    plain = [name or f"arg{i}" for i, name in enumerate(of_model)]
    names = list(plain)
    for i, name in enumerate(of_loss):
        chosen = name or f"loss_arg{i}"
        names.append(f"loss_{chosen}" if {chosen} & {*names, *kwargs, *options.hyperparameters} else chosen)
    for name in options.hyperparameters:
        if name in names or name in kwargs:
            raise CaptureError(
                f"the hyperparameter {name!r} has the name of an argument", hint="rename the argument of the model"
            )
        names.append(name)
    return names


def _parameters(names: Sequence[str], keywords: Mapping[str, Any]) -> list[inspect.Parameter]:
    made = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    return made + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in keywords]


def _by_name(shapes: Any, names: Sequence[str]) -> dict[str, Any]:
    """`dynamic_shapes` as a dict from arguments."""
    if shapes is None:
        return {}
    if isinstance(shapes, Mapping):
        return dict(shapes)
    if isinstance(shapes, (tuple, list)):
        if len(shapes) != len(names):
            raise CaptureError(
                f"dynamic_shapes has {len(shapes)} elements for {len(names)} arguments",
                hint="use a dict from argument names, or one element for each argument of the model and the loss",
            )
        return dict(zip(names, shapes, strict=True))
    if isinstance(shapes, str) or shapes is torch.export.Dim.AUTO:
        return dict.fromkeys(names, shapes)
    raise CaptureError(
        f"dynamic_shapes is a {type(shapes).__name__}", hint='use a dict from argument names to dims, "auto" or None'
    )


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """While active, the model is in evaluation mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
