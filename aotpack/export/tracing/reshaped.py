"""Inputs whose shape, strides or memory the model changes in place: `x.unsqueeze_(0)`, `x.resize_(2)`, `x.data = y`.

Eager does that to the caller's tensor. A call of an archive has nothing that it could change so: the caller's array
stays as it is, and torch.export fails in many ways. Such a model is refused before it is traced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aotpack.errors import CaptureError
from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat.dispatch import FollowingMode
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.export.torch_compat.tensors import storage_id

_HINT = "use a new tensor: x = x.unsqueeze(0) instead of x.unsqueeze_(0), x = x.clone() before set_"


def called_with_inputs_kept(function: Callable[[], Any], inputs: Sequence[tuple[str, torch.Tensor]]) -> Any:
    """What `function` returns, which must not change the shape, strides or memory of these tensors.

    Args:
        function: calls the model with `inputs`.
        inputs: names and tensors of the example call.

    Raises:
        CaptureError: one was changed; the message has its name, what changed it, and the line of the model.
    """
    watched = _Watched(inputs)
    with _Operators(watched):
        result = function()
    if watched.changed():
        # Assignments are no operators. To see them takes a mode under which torch leaves its fast paths (that of
        # `nn.TransformerEncoder`, for one), so they are looked for only where there was one.
        watched.put_back()
        with _Assignments(watched):
            function()
        watched.refuse_changes("an assignment to .data")
    return result


class _Watched:
    """Tensors that must stay as they are."""

    def __init__(self, inputs: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._known = [(name, tensor, _described(tensor)) for name, tensor in inputs]
        self._memory = [tensor.detach() for _, tensor in inputs]

    def changed(self) -> bool:
        """Whether one of them is not as it was."""
        return any(_described(tensor) != before for _, tensor, before in self._known)

    def put_back(self) -> None:
        """Gives them their memory, shapes and strides again."""
        for (_, tensor, _), memory in zip(self._known, self._memory, strict=True):
            tensor.data = memory

    def refuse_changes(self, what: str) -> None:
        """Raises CaptureError if one of them has changed, by `what`."""
        for name, tensor, before in self._known:
            after = _described(tensor)
            if after == before:
                continue
            change = (
                f"from shape {list(before[0])} to {list(after[0])}"
                if after[0] != before[0]
                else "to other strides or other memory"
            )
            line = model_lines.of_stack(sys._getframe(1))
            raise CaptureError(
                f"{what} changes the input {name!r} in place, {change}, which archives do not support"
                f"{'' if line is None else f'{chr(10)}  at {line.full}'}",
                hint=_HINT,
            )


class _Operators(FollowingMode):
    """Sees the operators that change more of a tensor than its elements."""

    def __init__(self, watched: _Watched) -> None:
        super().__init__()
        self._watched = watched

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(func, OpOverload) and torch.Tag.inplace_view in func.tags:
            self._watched.refuse_changes(operator_schema(func).name.rpartition("::")[2])
        return result


class _Assignments(TorchFunctionMode):
    """Sees `x.data = y`, which is no operator."""

    def __init__(self, watched: _Watched) -> None:
        super().__init__()
        self._watched = watched

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "__set__":
            self._watched.refuse_changes("an assignment to .data")
        return result


def _described(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), storage_id(tensor)
