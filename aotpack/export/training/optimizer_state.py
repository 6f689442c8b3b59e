"""What an optimizer keeps of each parameter between steps, and its values before the first step.

Optimizers make their state in the first step. An archive has it from the start, with values from which a step computes
what the first one does. They are found by trial steps: the values that tensors had before they were written to, then
zeros. Where there are none (SGD with dampening), the update has the first step apart (`entries.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from aotpack.errors import CaptureError
from aotpack.export.torch_compat.dispatch import FollowingMode
from aotpack.export.torch_compat.operators import HigherOrderOperator, operator_schema, written_arguments
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.training.update import stepped


@dataclass(frozen=True)
class OptimizerState:
    """The state of an optimizer before the first step of an archive.

    Attributes:
        groups: the names of the parameters of each group, without those that are not updated.
        tensors: by parameter and key; Python numbers are tensors of rank 0.
        numbers: (parameter, key) of what is a Python number: `int` or `float`.
        fixed: by parameter and key, what no step changes.
        fresh_apart: the parameters without state of which the first step computes something else than the later ones,
            whatever their state is.
    """

    groups: tuple[tuple[str, ...], ...]
    tensors: dict[str, dict[str, Tensor]]
    numbers: dict[tuple[str, str], type]
    fixed: dict[str, dict[str, Any]]
    fresh_apart: set[str]

    def names(self) -> list[str]:
        """The parameters that are updated."""
        return [name for group in self.groups for name in group]


def initial_state(optimizer: Optimizer, parameters: Mapping[str, Tensor], updated: Sequence[str]) -> OptimizerState:
    """The state of `optimizer`: what it has, and what it makes in its first step.

    Args:
        parameters: of the model, by name.
        updated: the names of those that have a gradient.

    Raises:
        CaptureError: the optimizer has parameters that are not the model's, or its state cannot be that of an archive.
    """
    groups = _groups(optimizer, parameters, updated)
    names = [name for group in groups for name in group]
    if not names:
        raise CaptureError(
            "the optimizer has no parameter to update: none of its parameters requires grad and has an effect on the "
            "loss",
            hint="pass the parameters to train: torch.optim.AdamW(model.parameters())",
        )
    made = OptimizerState(groups, {}, {}, {}, set())
    for name in names:
        known = {
            key: value for key, value in (optimizer.state.get(parameters[name]) or {}).items() if value is not None
        }
        # One by one: a trial has several copies of the parameter and its state.
        _try(made, optimizer, name, parameters[name].detach(), known)
    return made


def _groups(
    optimizer: Optimizer, parameters: Mapping[str, Tensor], updated: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    names = {id(parameter): name for name, parameter in parameters.items()}
    groups = []
    for number, group in enumerate(optimizer.param_groups):
        strange = [tuple(p.shape) for p in group["params"] if id(p) not in names]
        if strange:
            raise CaptureError(
                f"the optimizer's group {number} has a parameter of shape {strange[0]} that is not one of the model",
                hint="make the optimizer from the parameters of the model that is captured",
            )
        groups.append(tuple(names[id(p)] for p in group["params"] if names[id(p)] in updated))
    return tuple(groups)


def _try(made: OptimizerState, optimizer: Optimizer, name: str, parameter: Tensor, known: Mapping[str, Any]) -> None:
    """Adds the state of a parameter; `known` is what the optimizer has of it."""
    trial = _Trial(optimizer, [[name] if name in group else [] for group in made.groups], name, parameter)
    after, before = trial.first(known)
    initial = dict(known)
    if not known:
        for candidate in (_as_written, _as_zeros):
            initial = {key: candidate(value, before) for key, value in after.state.items()}
            if trial.step(initial).equals(after):
                break
        else:
            made.fresh_apart.add(name)
    for key, later in after.state.items():
        if key not in initial:
            raise CaptureError(
                f"the optimizer has no state {key!r} of {name!r}, which its next step makes",
                hint="restore the whole state of the optimizer before the capture, or none",
            )
        _describe(made, name, key, initial[key], later)


def _describe(made: OptimizerState, name: str, key: str, value: Any, later: Any) -> None:
    if isinstance(value, Tensor) and isinstance(later, Tensor) and _alike(value, later):
        made.tensors.setdefault(name, {})[key] = value
    elif _is_number(value) and type(value) is type(later):
        made.numbers[name, key] = type(value)
        dtype = torch.int64 if isinstance(value, int) else torch.float64
        made.tensors.setdefault(name, {})[key] = torch.tensor(value, dtype=dtype)
    elif not isinstance(value, Tensor) and not isinstance(later, Tensor) and (value is later or value == later):
        made.fixed.setdefault(name, {})[key] = value
    else:
        raise CaptureError(
            f"the optimizer's state {key!r} of {name!r} is a {type(later).__name__} that changes",
            hint="keep tensors that keep their shape and dtype, ints and floats in the state of a parameter",
        )


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.layout == b.layout == torch.strided


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ---- trial steps ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outcome:
    """A parameter and its state after a step."""

    parameter: Tensor
    state: Mapping[str, Any]

    def equals(self, other: _Outcome) -> bool:
        mine, theirs = ({"": each.parameter, **each.state} for each in (self, other))
        return mine.keys() == theirs.keys() and all(_same(mine[key], theirs[key]) for key in mine)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _alike(a, b) and torch.equal(a.nan_to_num(), b.nan_to_num())
    return bool(a is b or a == b)


class _Trial:
    """Steps over copies of a parameter with the same gradient, which is random: zeros would show nothing."""

    def __init__(self, optimizer: Optimizer, groups: Sequence[Sequence[str]], name: str, parameter: Tensor) -> None:
        self._optimizer = optimizer
        self._groups = groups
        self._name = name
        self._parameter = parameter
        generator = torch.Generator().manual_seed(0)
        self._gradient = torch.empty_like(parameter).copy_(torch.randn(parameter.shape, generator=generator))

    def first(self, known: Mapping[str, Any]) -> tuple[_Outcome, _Before]:
        """The first step, and what the tensors that it made held before it wrote to them."""
        with _Before() as before:
            return self.step(known), before

    def step(self, state: Mapping[str, Any]) -> _Outcome:
        parameters, gradients = {self._name: self._parameter.clone()}, {self._name: self._gradient.clone()}
        copied = {self._name: {key: _copied(value) for key, value in state.items()}} if state else {}
        inputs: list[dict[str, Any]] = [{} for _ in self._groups]
        after = stepped(self._optimizer, self._groups, parameters, gradients, copied, inputs)
        return _Outcome(parameters[self._name], after.get(self._name, {}))


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


class _Before(FollowingMode):
    """Copies each tensor right before it is first written to."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []

    def of(self, tensor: Tensor) -> Tensor | None:
        known = self._before.get(storage_id(tensor))
        return known if known is not None and _alike(known, tensor) else None

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(func, HigherOrderOperator) and operator_schema(func).is_mutable:
            for tensor in written_arguments(operator_schema(func), args, kwargs):
                if isinstance(tensor, Tensor) and storage_id(tensor) not in self._before:
                    self._before[storage_id(tensor)] = tensor.detach().clone()
                    # Its memory must not become that of another tensor.
                    self._alive.append(tensor)
        return func(*args, **kwargs)


def _as_written(value: Any, before: _Before) -> Any:
    if isinstance(value, Tensor):
        known = before.of(value)
        return torch.zeros_like(value) if known is None else known
    return _as_zeros(value, before)


def _as_zeros(value: Any, before: _Before) -> Any:
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return type(value)(0) if _is_number(value) else value
