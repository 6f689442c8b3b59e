"""The fake tensors of derived constants: what functions of tensors return, without their values."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from aotpack.export.torch_compat.fake_tensors import FakeTensorMode

_PLAIN = (int, float, str, bool, type(None), torch.dtype)


class Descriptions:
    """Fake tensors that functions return. A network asks the same of many of its layers: each question is answered
    once.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: dict[Hashable, torch.Tensor] = {}

    def of(self, function: Callable[..., torch.Tensor], values: Sequence[torch.Tensor]) -> torch.Tensor:
        """The fake tensor that `function` returns of these.

        Tensors without memory say the same, in a fraction of the time, but for functions that make tensors on a device
        that they name, or read elements.
        """
        with torch.no_grad():
            if all(type(size) is int for value in values for size in (*value.shape, *value.stride())):
                made = self._on_meta(function, values)
                if made is not None:
                    with self._mode:
                        return torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device=values[0].device)
            with self._mode:
                return function(*values)

    def _on_meta(self, function: Callable[..., torch.Tensor], values: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """What it returns of tensors on the meta device; None where that fails or is on another device."""
        key: Hashable = None
        with contextlib.suppress(TypeError):
            key = _exact(function), tuple((tuple(v.shape), v.stride(), v.dtype) for v in values)
        if key is not None and key in self._known:
            return self._known[key]
        given = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta") for v in values]
        # What functions make of nothing is on the CPU, where values are.
        here = torch.device("meta") if values and all(v.device.type == "cpu" for v in values) else nullcontext()
        with contextlib.suppress(Exception), here:
            made = function(*given)
            if made.is_meta:
                if key is not None:
                    self._known[key] = made
                return made
        return None


def _exact(value: Any) -> Hashable:
    """A value as a key that tells 1 from 1.0 and True.

    Raises:
        TypeError: it is of another kind than functions and their usual arguments.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_exact, value))
    if isinstance(value, partial):
        keywords = tuple((name, _exact(given)) for name, given in sorted(value.keywords.items()))
        return partial, _exact(value.func), _exact(value.args), keywords
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = tuple(_exact(getattr(value, field.name)) for field in dataclasses.fields(value))
        return type(value), fields
    if callable(value) and not isinstance(value, torch.Tensor):
        # Functions of their own are equal to nothing else; what they close over may change.
        hash(value)
        return callable, value
    raise TypeError(f"{type(value).__name__} is no key")
