"""A call of an archive as an operation of autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor
from torch.autograd.function import once_differentiable

from aotpack.archive.halves import Halves
from aotpack.runtime import Context, Entry
from aotpack.runtime.saved import check_versions, versions
from aotpack.spec import DictSpec, Spec, TensorLeaf


def as_tensor(value: Any) -> Any:
    """A result as a tensor; a number as it is."""
    return value if isinstance(value, (Tensor, bool, int, float)) else torch.utils.dlpack.from_dlpack(value)


def run(entry: Entry, halves: Halves, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of the forward, those for the backward too, outside of autograd."""
    detached = [value.detach() if isinstance(value, Tensor) else value for value in inputs]
    outputs = [as_tensor(value) for value in entry._run(detached, None)]
    for value, spec in zip(inputs, halves.forward.inputs, strict=True):
        if spec.mutated and isinstance(value, Tensor):
            # The archive has written to its memory, of which torch knows nothing.
            torch.autograd.graph.increment_version(value)
    return outputs


class Call:
    """One call of an archive, and what its backward needs beside tensors."""

    def __init__(self, entry: Entry, context: Context, halves: Halves) -> None:
        self.entry, self.context, self.halves = entry, context, halves
        self.inputs: list[Any] = []
        # Positions in `inputs`, and names of parameters, in the order of the tensors that `_Operation` gets.
        self.positions: list[int] = []
        self.names: list[str] = []
        self.versions = versions(context)
        # By what the backward reads of the forward: a number, or None for a tensor.
        self.numbers: list[Any] = []
        self.like: list[tuple[torch.Size, torch.dtype]] = []

    def differentiable(self, inputs: list[Any], parameters: Mapping[str, Tensor]) -> list[Any]:
        """The outputs, as a part of the graph of parameters and inputs.

        Raises:
            RuntimeError: an input requires a gradient that the archive does not compute.
        """
        known = _results(self.halves.backward.out_spec, "input_gradients")
        self.inputs, self.names = inputs, list(parameters)
        for position, value in enumerate(inputs):
            if not isinstance(value, Tensor):
                continue
            name = self.halves.forward.inputs[position].name
            if value.requires_grad and name not in known:
                raise RuntimeError(
                    f"the input {name!r} requires grad, but the archive does not compute its gradient: pass "
                    "x.detach(), or capture with an example input that requires grad"
                )
            self.positions.append(position)
        tensors = [inputs[position] for position in self.positions]
        return list(_Operation.apply(self, *parameters.values(), *tensors))  # type: ignore[no-untyped-call]

    def results(self) -> list[int | None]:
        """For each tensor of `_Operation`: the result of the backward that is its gradient."""
        spec = self.halves.backward.out_spec
        parameters, inputs = _results(spec, "gradients"), _results(spec, "input_gradients")
        names = [self.halves.forward.inputs[position].name for position in self.positions]
        return [*(parameters.get(name) for name in self.names), *(inputs.get(name) for name in names)]


class _Operation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor) -> tuple[Any, ...]:
        halves = call.halves
        outputs = run(call.entry, halves, call.inputs)
        kept = [*(outputs[i] for i in halves.outputs), *(call.inputs[i] for i in halves.inputs)]
        call.numbers = [None if isinstance(value, Tensor) else value for value in kept]
        call.like = [(outputs[i].shape, outputs[i].dtype) for i in halves.gradients]
        # What is kept lives in torch's own hands: it detects writes to it, and parameters that changed meanwhile.
        count = len(call.names)
        ctx.save_for_backward(*tensors[:count], *(value for value in kept if isinstance(value, Tensor)))
        ctx.set_materialize_grads(False)
        fixed = [t for i, t in enumerate(outputs) if isinstance(t, Tensor) and i not in halves.gradients]
        ctx.mark_non_differentiable(*fixed)
        call.inputs = []
        ctx.call = call
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        call: Call = ctx.call
        halves = call.halves
        tensors = iter(ctx.saved_tensors[len(call.names) :])
        check_versions(call.context, call.versions)
        inputs = [next(tensors).detach() if number is None else number for number in call.numbers]
        given: dict[int, Tensor] = {}
        for (output, position), (shape, dtype) in zip(halves.gradients.items(), call.like, strict=True):
            gradient = gradients[output]
            given[position] = torch.zeros(shape, dtype=dtype) if gradient is None else gradient.detach()
        inputs += [given[position] for position in sorted(given)]
        results = Entry(call.context, halves.backward.name)._run(inputs, None)
        found = [None if i is None else as_tensor(results[i]) for i in call.results()]
        needed = ctx.needs_input_grad[1:]
        return (None, *(value if wanted else None for value, wanted in zip(found, needed, strict=True)))


def _results(spec: Spec, part: str) -> dict[str, int]:
    """By name: the results of the backward in one part of what it returns."""
    if not isinstance(spec, DictSpec) or part not in spec.keys:
        return {}
    items = spec.items[spec.keys.index(part)]
    assert isinstance(items, DictSpec)
    return {
        str(key): item.index for key, item in zip(items.keys, items.items, strict=True) if isinstance(item, TensorLeaf)
    }
