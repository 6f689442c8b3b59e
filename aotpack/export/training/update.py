"""One step of an optimizer over given tensors: eager ones, or those of a trace."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from aotpack.errors import CaptureError
from aotpack.export.torch_compat.tensors import version_of
from aotpack.export.tracing.trace import message
from aotpack.export.training.arithmetic import numbers_as_tensors

# By parameter, what the optimizer keeps of it.
State = Mapping[str, Mapping[str, Any]]


class FunctionOptimizer(Optimizer):
    """An optimizer that is a function of one parameter, its gradient and its state, a dict that starts empty.

    The function writes to the parameter. Its keyword-only arguments with a default are the hyperparameters.
    """

    def __init__(self, parameters: Collection[Tensor], function: Callable[..., Any]) -> None:
        self.function = function
        super().__init__(parameters, dict(getattr(function, "__kwdefaults__", None) or {}))

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for group in self.param_groups:
                values = {key: group[key] for key in self.defaults}
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self.function(parameter, parameter.grad, self.state[parameter], **values)


def stepped(
    optimizer: Optimizer,
    groups: Sequence[Sequence[str]],
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    state: State,
    inputs: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Writes to `parameters` and returns the state after the step; tensors of `state` may be written to.

    Args:
        optimizer: is left as it is.
        groups: the names of the parameters of each of its groups.
        parameters, gradients: by name; a parameter without a gradient is not updated.
        state: of the parameters that have one.
        inputs: for each group the hyperparameters that it has in this step instead of its own. In a trace they are
            tensors of rank 0.

    Raises:
        CaptureError: the step fails.
    """
    traced = torch.compiler.is_compiling()
    wide = [name for name, parameter in parameters.items() if traced and parameter.dim() == 0]
    leaves = {name: parameter.detach() for name, parameter in parameters.items()}
    # Beside numbers, which are of rank 0 and double precision in a trace, it would lose its dtype on the way.
    leaves.update({name: as_number(leaves[name]) for name in wide})
    for name, gradient in gradients.items():
        leaves[name].grad = as_number(gradient) if name in wide else gradient
    made: list[dict[str, Any]] = []
    for group, names, values in zip(optimizer.param_groups, groups, inputs, strict=True):
        plain = {"foreach": False, "fused": False, "capturable": traced, "differentiable": False}
        known = {key: value for key, value in plain.items() if key in group}
        constants = {key: _plain(value) for key, value in group.items()}
        made.append({**constants, **known, **values, "params": [leaves[name] for name in names]})
    numbers = [number for values in inputs for number in _tensors(values)]
    other = object.__new__(type(optimizer))
    other.__dict__ = dict(optimizer.__dict__)
    other.param_groups = made
    other.state = defaultdict(dict, {leaves[name]: dict(entries) for name, entries in state.items()})
    before = [{key: value for key, value in group.items() if key != "params"} for group in made]
    attributes = _attributes(other)
    try:
        with torch.no_grad(), numbers_as_tensors(numbers) if traced else contextlib.nullcontext():
            # Schedulers of learning rates put a step of the original into its attributes.
            type(optimizer).step(other)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"a step of {type(optimizer).__name__} cannot be captured: {type(error).__name__}: {message(error)}",
            hint="it must do the same in each call: no closure, and no Python control flow on values of tensors, step "
            "counts or hyperparameters that are inputs",
        ) from error
    _refuse_changes(optimizer, before, made)
    _refuse_attributes(optimizer, attributes, _attributes(other))
    with torch.no_grad():
        for name in wide:
            parameters[name].detach().copy_(leaves[name])
    return {name: dict(other.state[leaf]) for name, leaf in leaves.items() if leaf in other.state}


def as_number(value: Tensor) -> Tensor:
    """A tensor of rank 0 as a number of a trace: a copy in double precision."""
    return value.to(torch.float64, copy=True) if not value.is_complex() else value.clone()


def _plain(value: Any) -> Any:
    """A hyperparameter: torch also takes tensors with one element for numbers."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _tensors(values: Mapping[str, Any]) -> list[Tensor]:
    flat = [item for value in values.values() for item in (value if isinstance(value, (tuple, list)) else [value])]
    return [item for item in flat if isinstance(item, Tensor)]


def _attributes(optimizer: Optimizer) -> dict[str, tuple[Any, int]]:
    """What an optimizer has beside the state of parameters and groups, with how often tensors were written to."""
    others = {key: value for key, value in vars(optimizer).items() if key not in ("state", "param_groups")}
    return {key: (value, version_of(value) if isinstance(value, Tensor) else 0) for key, value in others.items()}


def _refuse_attributes(
    optimizer: Optimizer, before: Mapping[str, tuple[Any, int]], after: Mapping[str, tuple[Any, int]]
) -> None:
    for key, (value, version) in after.items():
        known, old = before.get(key, (None, 0))
        if value is not known or version != old:
            raise CaptureError(
                f"a step of {type(optimizer).__name__} changes its attribute {key!r}",
                hint="keep what changes in the state of the parameters, self.state[parameter]",
            )


def _refuse_changes(
    optimizer: Optimizer, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> None:
    for old, new in zip(before, after, strict=True):
        for key, value in new.items():
            if key != "params" and value is not old.get(key):
                raise CaptureError(
                    f"a step of {type(optimizer).__name__} changes {key!r} of its parameter group",
                    hint="keep what changes in the state of the parameters, self.state[parameter]",
                )
