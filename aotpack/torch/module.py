"""An archive as a `torch.nn.Module`."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from aotpack.archive.halves import Halves
from aotpack.runtime import Context, Entry, Model, load
from aotpack.runtime.saved import halves_of_entry
from aotpack.runtime.structure import flatten, unflatten
from aotpack.torch.function import Call, as_tensor, run


class ArchiveModule(nn.Module):
    """See `aotpack.torch.as_module`. Calls run one after the other, in one context."""

    def __init__(self, model: Model, context: Context, entry: Entry, halves: Halves, *, trainable: bool) -> None:
        super().__init__()
        self._model, self._context, self._entry, self._halves = model, context, entry, halves
        self._trainable = trainable
        constants = {constant.name: constant for constant in model.manifest.constants}
        # By name: the tensor that calls read.
        self._shared: dict[str, Tensor] = {}
        for name, shared in context._share_state().items():
            tensor = as_tensor(shared)
            constant = constants[name]
            value = nn.Parameter(tensor, trainable) if constant.role == "parameter" else tensor
            # A tensor that the model has under several names is one tensor here too.
            for source in dict.fromkeys((name, *constant.sources)):
                _register(self, source, value)
            self._shared[name] = tensor

    @staticmethod
    def of(
        archive: Model | str | os.PathLike[str],
        *,
        trainable: bool,
        entry: str,
        seed: int | None,
        num_threads: int | None,
    ) -> ArchiveModule:
        model = archive if isinstance(archive, Model) else load(archive)
        context = model.context(seed=seed, num_threads=num_threads)
        forward = context.entry(entry)
        return ArchiveModule(model, context, forward, halves_of_entry(forward), trainable=trainable)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = Call(self._entry, self._context, self._halves)
        inputs = flatten(self._halves.forward.in_spec, args, kwargs)
        parameters = dict(self._checked())
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        if torch.is_grad_enabled() and any(t.requires_grad for t in (*parameters.values(), *tensors)):
            outputs = call.differentiable(inputs, parameters)
        else:
            outputs = run(self._entry, self._halves, inputs)
        return unflatten(self._halves.forward.out_spec, outputs)

    def _checked(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters, which are those that calls read.

        Raises:
            RuntimeError: a tensor was replaced by one that calls would not read.
        """
        for name, shared in self._shared.items():
            tensor = _attribute(self, name)
            if not _same_memory(tensor, shared):
                raise RuntimeError(
                    f"{name!r} was replaced by another tensor ({tensor.dtype} on {tensor.device}), which the archive "
                    "does not read: change values in place, by copy_() or load_state_dict() without assign=True; an "
                    "archive has one dtype and device"
                )
            if isinstance(tensor, nn.Parameter):
                yield name, tensor

    def extra_repr(self) -> str:
        return f"{self._model.path!r}, entry={self._entry.entry_name!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> ArchiveModule:
        """A module with a context of its own, with the same values."""
        name = self._entry.entry_name
        other = ArchiveModule.of(self._model, trainable=self._trainable, entry=name, seed=None, num_threads=None)
        memo[id(self)] = other
        with torch.no_grad():
            for (own, target), (_, source) in zip(other._shared.items(), self._shared.items(), strict=True):
                target.copy_(source)
                copied, original = _attribute(other, own), _attribute(self, own)
                # Others may have it too, such as a tied layer.
                memo[id(original)] = copied
                copied.requires_grad_(original.requires_grad)
                copied.grad = copy.deepcopy(original.grad, memo)
        other.train(self.training)
        return other

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a module over an archive cannot be pickled: save its state_dict(), and the archive as a file")


def _same_memory(tensor: Tensor, shared: Tensor) -> bool:
    return (
        tensor.data_ptr() == shared.data_ptr()
        and tensor.dtype == shared.dtype
        and tensor.shape == shared.shape
        and tensor.stride() == shared.stride()
    )


def _register(module: nn.Module, path: str, value: Tensor) -> None:
    *parents, name = path.split(".")
    for part in parents:
        children = dict(module.named_children())
        if part not in children:
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _attribute(module: nn.Module, path: str) -> Tensor:
    parent, _, name = path.rpartition(".")
    value: Any = getattr(module.get_submodule(parent), name)
    if not isinstance(value, Tensor):
        raise RuntimeError(f"{path!r} was removed from the module, which the archive needs")
    return value
