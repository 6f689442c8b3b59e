"""What a forward keeps for its backward: a handle over tensors, which are not copied (docs/autograd.md)."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from aotpack.archive.halves import GRADIENTS, Halves, halves_of
from aotpack.errors import InputError
from aotpack.runtime._native import Runner, Tensor
from aotpack.runtime.structure import flatten, flatten_value, manifest_of, unflatten


class Saved:
    """What a forward has kept for its backward: tensors of that call, by reference.

    Created by `Entry.forward`. It belongs to the context and the entry that made it, may be used several times, and
    keeps its tensors until `release` or the end of its life. The inputs and outputs of the forward must not be written
    to before the backward.
    """

    def __init__(self, context: Runner, halves: Halves, values: list[Any], shapes: list[tuple[int, ...]]) -> None:
        self._context = context
        self._halves = halves
        self._values: list[Any] | None = values
        # Of the outputs that have gradients.
        self._shapes = shapes
        self._versions = versions(context)

    @property
    def entry_name(self) -> str:
        """The entry whose forward made it."""
        return self._halves.forward.name

    @property
    def nbytes(self) -> int:
        """The size of the tensors in bytes, those of the caller included; 0 after `release`."""
        return sum(getattr(value, "nbytes", 8) for value in self._values or ())

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._values is None

    def release(self) -> None:
        """Gives the tensors back; backward then rejects the handle."""
        self._values = None

    def __repr__(self) -> str:
        state = "released" if self.is_released else f"{self.nbytes} bytes"
        return f"aotpack.Saved({self.entry_name!r}, {state})"


def forward(entry: Runner, context: Runner | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Saved]:
    """See `Entry.forward`; `context` is that of the entry."""
    halves = halves_of_entry(entry)
    if context is None:
        raise InputError(
            "a forward that keeps tensors for its backward runs in a context",
            hint="use context = model.context(), then context.forward(…)",
        )
    inputs = flatten(halves.forward.in_spec, args, kwargs)
    outputs = entry._run(inputs, None)
    kept = [*(outputs[i] for i in halves.outputs), *(inputs[i] for i in halves.inputs)]
    shapes = [tuple(outputs[i].shape) for i in halves.gradients]
    return unflatten(halves.forward.out_spec, outputs), Saved(context, halves, kept, shapes)


def backward(entry: Runner, context: Runner | None, saved: Saved, gradients: Any) -> Any:
    """See `Entry.backward`; `context` is that of the entry."""
    values = _checked(entry, context, saved)
    halves = saved._halves
    given = flatten_value(halves.backward.in_spec.args[1], gradients, GRADIENTS)
    for position, shape in zip(halves.gradients.values(), saved._shapes, strict=True):
        if given[position] is None:
            given[position] = _zeros(halves, position, shape)
    inputs = [*values, *(given[position] for position in range(len(values), len(halves.backward.inputs)))]
    return unflatten(halves.backward.out_spec, Runner(saved._context, halves.backward.name)._run(inputs, None))


def _zeros(halves: Halves, position: int, shape: tuple[int, ...]) -> Tensor:
    """A gradient that is None."""
    dtype = halves.backward.inputs[position].dtype
    return Tensor.from_buffer(bytes(prod(shape) * dtype.itemsize), dtype.value, shape)


def _checked(entry: Runner, context: Runner | None, saved: Saved) -> list[Any]:
    """The tensors that a backward of this entry may use.

    Raises:
        InputError: they are not those of a forward of this entry and context, or no longer.
    """
    if not isinstance(saved, Saved):
        raise InputError(f"saved must be what forward() returned, got a {type(saved).__name__}")
    if saved._context is not context:
        raise InputError(
            "the saved tensors belong to another context",
            hint="call backward() of the context whose forward() returned them",
        )
    if saved.entry_name != entry.entry_name:
        raise InputError(
            f"the saved tensors are those of the entry {saved.entry_name!r}, not of {entry.entry_name!r}",
            hint=f"use context.entry({saved.entry_name!r}).backward(…)",
        )
    if saved._values is None:
        raise InputError("the saved tensors were released", hint="run the forward again")
    check_versions(saved._context, saved._versions)
    return saved._values


def versions(context: Runner) -> tuple[int, int]:
    """What changes when the state of a context is loaded or reset, and when its model's weights are updated."""
    return context._state_generation, context._weight_generation


def check_versions(context: Runner, before: tuple[int, int]) -> None:
    """Checks that parameters are those of the forward.

    Raises:
        InputError: they were loaded since `versions` returned `before`.
    """
    state, weights = versions(context)
    if (state, weights) == before:
        return
    what = (
        "the state of the context was loaded or reset" if weights == before[1] else "the model's weights were updated"
    )
    raise InputError(
        f"{what} between the forward and its backward, which would compute with other values",
        hint="change parameters after the backward, or run the forward again",
    )


def halves_of_entry(entry: Runner) -> Halves:
    """An entry and its backward.

    Raises:
        InputError: it has none.
    """
    halves = _known(entry._manifest, entry.entry_name)
    if halves is None:
        raise InputError(
            f"the entry {entry.entry_name!r} has no backward",
            hint='capture the model with mode="forward_backward" (docs/autograd.md)',
        )
    return halves


@lru_cache(maxsize=64)
def _known(manifest: bytes, forward: str) -> Halves | None:
    return halves_of(manifest_of(manifest), forward)
