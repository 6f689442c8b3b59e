"""Tensors of a model whose shape a call changes: `resize_`, `unsqueeze_`, an assignment to `.data`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.diagnostics import model_lines

_HINT = (
    "the shape of state is the same in all calls. If only the first call changes it, call the model once "
    "before capture, or create the tensor in __init__ with its final shape"
)


@dataclass
class _Shape:
    """A tensor, how it lay before the call, and the first line that changed it."""

    tensor: torch.Tensor
    storage: torch.UntypedStorage
    offset: int
    size: torch.Size
    stride: tuple[int, ...]
    line: model_lines.ModelLine | None = None

    @property
    def changed(self) -> bool:
        return self.tensor.shape != self.size or self.tensor.stride() != self.stride


class Shapes:
    """The shapes of tensors, as they are when they are added."""

    def __init__(self) -> None:
        self._known: dict[int, _Shape] = {}

    def add(self, tensor: torch.Tensor) -> None:
        if tensor.layout != torch.strided or tensor.is_meta or id(tensor) in self._known:
            return
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return  # a class of its own, whose tensors inside are what has memory
        self._known[id(tensor)] = _Shape(tensor, storage, int(tensor.storage_offset()), tensor.shape, tensor.stride())

    def written(self, tensors: Iterable[Any]) -> None:
        """To be called from within an operator's call, after it has written to these."""
        for tensor in tensors:
            known = self._known.get(id(tensor))
            if known is not None and known.line is None and known.changed:
                known.line = model_lines.of_stack(sys._getframe(1))

    def refuse_changes(self, names: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Refuses a call that has left a tensor with another shape.

        Raises:
            CaptureError: naming the tensor and the line of the model.
        """
        for known in self._changed():
            name = next((name for name, tensor in names if tensor is known.tensor), "a tensor of the model")
            where = "" if known.line is None else f"\n  at {known.line.full}"
            before, after = tuple(known.size), tuple(known.tensor.shape)
            what = (
                f"the size of {name} changes in the call, from {before} to {after}"
                if before != after
                else f"the strides of {name} change in the call, from {known.stride} to {known.tensor.stride()}"
            )
            raise CaptureError(f"{what}{where}", hint=_HINT)

    def put_back(self) -> None:
        for known in self._changed():
            known.tensor.data = torch.empty(0, dtype=known.tensor.dtype).set_(
                known.storage, known.offset, known.size, known.stride
            )

    def _changed(self) -> Iterator[_Shape]:
        return (known for known in list(self._known.values()) if known.changed)
