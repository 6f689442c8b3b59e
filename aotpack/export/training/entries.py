"""The entries of a training archive as modules: `train_step`, `accumulate`, `gradients` and `apply`.

They stand in the place of the model: its parameters and buffers are theirs, by the same names. The state of the
optimizer consists of buffers below the name `optimizer`. All entries write to the same tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from aotpack.errors import CaptureError
from aotpack.export.ir.program import get_attribute
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.modules import put_over
from aotpack.export.tracing.autocast import no_autocast
from aotpack.export.training.buckets import Slot, flat, gradients_of, table
from aotpack.export.training.optimizer_state import OptimizerState
from aotpack.export.training.options import TrainingOptions
from aotpack.export.training.tied import Tied, in_place
from aotpack.export.training.update import State, as_number, stepped

OPTIMIZER = "optimizer"
BUCKETS = "buckets"
_STARTED = "started"
_ACCUMULATED = "accumulated"


@dataclass(frozen=True)
class Training:
    """What the entries of one archive share.

    Attributes:
        loss: called with the outputs of the model and the arguments of the loss.
        counts: of the positional arguments of the model, and of those of the loss.
        tied: what the model has under a second name, taken out of its tables.
        holder: the module with the buffers of the optimizer.
        slots: of the gradients in buckets, by parameter; empty without buckets.
    """

    model: nn.Module
    loss: Callable[..., Any]
    counts: tuple[int, int]
    tied: Sequence[Tied]
    optimizer: Optimizer
    state: OptimizerState
    options: TrainingOptions
    holder: nn.Module
    slots: Mapping[str, Slot]

    def groups_of_inputs(self, given: Sequence[Any]) -> list[dict[str, Any]]:
        """For each group, the hyperparameters that a call passes."""
        count = len(self.optimizer.param_groups)
        each = [[value] if count == 1 else list(value) for value in given]
        return [
            {key: values[i] for key, values in zip(self.options.hyperparameters, each, strict=True)}
            for i in range(count)
        ]


def buffers(state: OptimizerState, options: TrainingOptions, parameters: Mapping[str, Tensor]) -> nn.Module:
    """A module with the state of an optimizer: `state.<parameter>.<key>`, and what its entries need beyond that."""
    holder = nn.Module()
    for name, own in state.tensors.items():
        for key, value in own.items():
            _register(holder, f"state.{name}.{key}", value)
    if state.fresh_apart:
        _register(holder, _STARTED, torch.zeros((), dtype=torch.bool))
    if options.accumulate is not None:
        for name in state.names():
            _register(holder, f"gradients.{name}", torch.zeros_like(parameters[name].detach()))
        _register(holder, _ACCUMULATED, torch.zeros((), dtype=torch.int64))
    return holder


def _register(holder: nn.Module, path: str, value: Tensor) -> None:
    *parents, name = path.split(".")
    for part in parents:
        if part not in dict(holder.named_children()):
            holder.add_module(part, nn.Module())
        holder = getattr(holder, part)
    holder.register_buffer(name, value)


class _Entry(nn.Module):
    """A module over the parameters and buffers of a model and of an optimizer."""

    def __init__(self, training: Training, parameters: Sequence[inspect.Parameter]) -> None:
        super().__init__()
        # A trace sets parameters of this module; they are then those of the model.
        put_over(self, training.model, **{OPTIMIZER: training.holder})
        # Not a child, which would give each tensor a second name.
        self.__dict__["training_of"] = training
        call: Any = self.called

        def forward(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self.forward = forward

    def called(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def _training(self) -> Training:
        return self.__dict__["training_of"]  # type: ignore[no-any-return]

    def _owned(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies that may be written to, in the layouts of the parameters."""
        return {name: _own(gradients[name], get_attribute(self, name)) for name in self._training.state.names()}

    def _sums(self) -> dict[str, Tensor]:
        return {name: get_attribute(self, f"{OPTIMIZER}.gradients.{name}") for name in self._training.state.names()}

    def _count(self) -> Tensor:
        return get_attribute(self, f"{OPTIMIZER}.{_ACCUMULATED}")

    def _accumulate(self, gradients: Mapping[str, Tensor]) -> None:
        for name, total in self._sums().items():
            total.add_(gradients[name])
        self._count().add_(1)

    def _accumulated(self) -> tuple[dict[str, Tensor], Tensor]:
        """Copies of the mean or the sums of accumulated gradients, and the number of calls."""
        count, mean = self._count(), self._training.options.accumulate == "mean"
        gradients = {
            name: total / count.clamp(min=1) if mean else total.clone() for name, total in self._sums().items()
        }
        return gradients, count.clone()

    def _start_anew(self) -> None:
        for total in self._sums().values():
            total.zero_()
        self._count().zero_()


class _OverExamples(_Entry):
    """An entry that runs the model forward and backward."""

    def _loss_and_gradients(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        training = self._training
        count = training.counts[0]
        names = training.state.names()
        tensors = [get_attribute(self, name) for name in names]
        with torch.enable_grad():
            with in_place({each: get_attribute(self, each.first) for each in training.tied}):
                outputs = training.model(*args[:count], **kwargs)
            loss = checked_loss(training.loss(outputs, *args[count:]))
        # An autocast around the capture is one of the forward alone.
        with no_autocast():
            found = torch.autograd.grad(loss, tensors, torch.ones_like(loss), allow_unused=True)
        for name, gradient in zip(names, found, strict=True):
            if gradient is None:
                raise CaptureError(
                    f"the trace has no gradient of {name!r}, which eager has",
                    hint="read the parameter as an attribute of the model in each call: a reference to it that was "
                    "made before, in the loss for example, is a constant of the trace",
                )
        result = {"loss": loss, "outputs": outputs} if training.options.outputs else {"loss": loss}
        return result, dict(zip(names, found, strict=True))


def _own(gradient: Tensor, parameter: Tensor) -> Tensor:
    """A copy in the layout of the parameter: gradients are written to, and some of them may share memory."""
    copied = torch.empty_like(parameter).copy_(gradient)
    # Of weights of convolutions it is computed in another layout. TorchInductor has the argument of this view in
    # memory, and would otherwise transpose each tile of it once for every tensor that the update writes.
    apart = parameter.dim() > 2 and is_dense(parameter)
    return torch.as_strided(copied, parameter.shape, parameter.stride()) if apart else copied


class TrainStep(_OverExamples):
    """Forward, backward and update. Called with the arguments of the model, those of the loss, and hyperparameters."""

    def called(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        examples, inputs = sum(self._training.counts), self._training.options.hyperparameters
        given = [*args[examples:], *(kwargs.pop(key) for key in inputs[len(args) - examples :])]
        result, gradients = self._loss_and_gradients(args[:examples], kwargs)
        update(self, self._training, self._owned(gradients), given)
        return result


class Accumulate(_OverExamples):
    """Forward and backward; adds the gradients to those of earlier calls."""

    def called(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result, gradients = self._loss_and_gradients(args, kwargs)
        with torch.no_grad():
            self._accumulate(gradients)
        return result


class Gradients(_OverExamples):
    """Forward and backward; returns the gradients in buckets, with those of earlier calls of `accumulate`."""

    def called(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        slots = self._training.slots
        result, gradients = self._loss_and_gradients(args, kwargs)
        with torch.no_grad():
            if self._training.options.accumulate is not None:
                self._accumulate(gradients)
                gradients, result["batches"] = self._accumulated()
                self._start_anew()
            buckets = flat(slots, gradients)
        return {**result, "buckets": buckets, "parameters": table(slots)}


class Apply(_Entry):
    """Updates the parameters by accumulated gradients, and sets these to zero. Called with hyperparameters.

    Without a call of `accumulate` before it, the gradients are zeros.
    """

    def called(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        with torch.no_grad():
            gradients, batches = self._accumulated()
        update(self, self._training, gradients, _hyperparameters(self._training, args, kwargs))
        with torch.no_grad():
            self._start_anew()
        return {"batches": batches}


class ApplyBuckets(_Entry):
    """Updates the parameters by the gradients in buckets. Called with these and hyperparameters."""

    def called(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        buckets, args = (args[0], args[1:]) if args else (kwargs.pop(BUCKETS), args)
        with torch.no_grad():
            gradients = self._owned(gradients_of(self._training.slots, buckets))
        update(self, self._training, gradients, _hyperparameters(self._training, args, kwargs))
        return {}


def _hyperparameters(training: Training, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    return [*args, *(kwargs[key] for key in training.options.hyperparameters[len(args) :])]


def checked_loss(loss: Any) -> Tensor:
    """The loss, if a gradient can be taken of it.

    Raises:
        CaptureError: it cannot.
    """
    if not isinstance(loss, Tensor):
        raise CaptureError(f"the loss is a {type(loss).__name__}", hint="`loss` returns a tensor with one element")
    if loss.numel() != 1 or not loss.is_floating_point():
        raise CaptureError(
            f"the loss is a tensor of shape {tuple(loss.shape)} and {loss.dtype}",
            hint="`loss` returns a floating-point tensor with one element: take the mean or the sum",
        )
    if not loss.requires_grad:
        raise CaptureError(
            "the loss does not depend on a parameter that requires grad",
            hint="look for detach() and torch.no_grad() in the model and the loss, and for frozen parameters",
        )
    return loss


def update(entry: nn.Module, training: Training, gradients: Mapping[str, Tensor], given: Sequence[Any]) -> None:
    """Clips the gradients and makes one step of the optimizer: writes to parameters and buffers of `entry`."""
    state, traced = training.state, torch.compiler.is_compiling()
    inputs = training.groups_of_inputs(pytree.tree_map(_as_number, list(given)) if traced else given)
    parameters = {name: get_attribute(entry, name) for name in state.names()}
    with torch.no_grad():
        _clip(gradients, parameters, training.options)
    held: dict[str, dict[str, Tensor]] = {
        name: {key: get_attribute(entry, f"{OPTIMIZER}.state.{name}.{key}") for key in own}
        for name, own in state.tensors.items()
    }
    handed = {
        name: {
            **{key: _handed(state, name, key, value, traced) for key, value in held[name].items()},
            **state.fixed.get(name, {}),
        }
        for name in held
    }
    for name, own in state.fixed.items():
        handed.setdefault(name, dict(own))
    with no_autocast():
        if state.fresh_apart:
            started = get_attribute(entry, f"{OPTIMIZER}.{_STARTED}")
            _first_or_later(training, parameters, gradients, handed, held, inputs, started)
            return
        after = stepped(training.optimizer, state.groups, parameters, gradients, handed, inputs)
        _refuse_other_state(after, handed)
        with torch.no_grad():
            _keep(after, held)


def _first_or_later(
    training: Training,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    handed: Mapping[str, Mapping[str, Any]],
    held: Mapping[str, Mapping[str, Tensor]],
    inputs: Sequence[Mapping[str, Any]],
    started: Tensor,
) -> None:
    """Makes the first step from no state and a later one from `handed`, and keeps the one that this call is."""
    groups = training.state.groups
    with torch.no_grad():
        first = {name: value.clone() for name, value in parameters.items()}
        later = {name: value.clone() for name, value in parameters.items()}
        copies = [{name: value.clone() for name, value in gradients.items()} for _ in range(2)]
        known = {
            name: {key: value.clone() if isinstance(value, Tensor) else value for key, value in own.items()}
            for name, own in handed.items()
            if name not in training.state.fresh_apart
        }
    made = stepped(training.optimizer, groups, first, copies[0], known, inputs)
    kept = stepped(training.optimizer, groups, later, copies[1], handed, inputs)
    _refuse_other_state(made, handed)
    _refuse_other_state(kept, handed)
    with torch.no_grad():
        for name, value in parameters.items():
            value.detach().copy_(torch.where(started, later[name], first[name]))
        for name, own in held.items():
            for key, buffer in own.items():
                before, after = (_as_tensor(each[name][key], buffer) for each in (made, kept))
                buffer.copy_(torch.where(started, after, before))
        started.fill_(True)


def _refuse_other_state(after: State, handed: State) -> None:
    """Refuses a step after which parameters have other state than at the trial steps of `initial_state`."""
    for name in {**after, **handed}:
        differing = {*after.get(name, {})} ^ {*handed.get(name, {})}
        if differing:
            raise CaptureError(
                f"the optimizer has the state {min(differing)!r} of {name!r} only with hyperparameters other than "
                "its own",
                hint="make it with values other than 0 for the hyperparameters that are inputs, such as momentum",
            )


def _handed(state: OptimizerState, name: str, key: str, held: Tensor, traced: bool) -> Any:
    """What the optimizer gets for a tensor of its state: numbers in eager, and in a trace tensors for numbers."""
    kind = state.numbers.get((name, key))
    if not traced:
        return held if kind is None else kind(held.item())
    # In single precision 1 - 0.999 ** step would lose half of its digits.
    return as_number(held) if held.dim() == 0 and held.dtype != torch.bool else held


def _keep(after: Mapping[str, Mapping[str, Any]], held: Mapping[str, Mapping[str, Tensor]]) -> None:
    for name, own in held.items():
        for key, buffer in own.items():
            value = after[name][key]
            if value is not buffer:
                buffer.copy_(_as_tensor(value, buffer))


def _as_tensor(value: Any, like: Tensor) -> Tensor:
    return value.to(like.dtype) if isinstance(value, Tensor) else torch.full_like(like, value)


def _as_number(value: Any) -> Any:
    """A number of a trace as a tensor of rank 0."""
    return torch.scalar_tensor(value, dtype=torch.float64)


def _clip(gradients: Mapping[str, Tensor], parameters: Mapping[str, Tensor], options: TrainingOptions) -> None:
    if options.clip_value is None and options.clip_norm is None:
        return
    leaves = [parameters[name].detach() for name in gradients]
    for leaf, gradient in zip(leaves, gradients.values(), strict=True):
        leaf.grad = gradient
    if options.clip_value is not None:
        nn.utils.clip_grad_value_(leaves, options.clip_value, foreach=False)
    if options.clip_norm is not None:
        nn.utils.clip_grad_norm_(leaves, options.clip_norm, foreach=False)
