"""Operators over lists of tensors, torch._foreach_*: tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes


def _powsum(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Any:
    return (x if dtype is None else x.to(dtype)).abs().pow(ord).sum()


def _norm(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Any:
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


def _addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, factor: Any) -> Any:
    return x + factor * (tensor1 / tensor2)


def _addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, factor: Any) -> Any:
    return x + factor * (tensor1 * tensor2)


# By name; what is not here has torch's function of the same name.
_EACH: dict[str, Callable[..., Any]] = {
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
    "norm": _norm,
    "powsum": _powsum,
    "zero": torch.zeros_like,
}
_OVERLOADS = {
    "default": (
        "acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 max mm round sigmoid "
        "sin sinh tan tanh trunc zero"
    ),
    "List": "lerp",
    "Scalar": "norm powsum",
    "ScalarList": "add addcdiv addcmul clamp_max clamp_min div maximum minimum mul pow sub",
}


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        lists = [list(arg) if isinstance(arg, (list, tuple)) else [arg] * len(tensors) for arg in args]
        return [function(x, *others, **kwargs) for x, *others in zip(tensors, *lists, strict=True)]

    return decompose


for _overload, _names in _OVERLOADS.items():
    for _name in _names.split():
        # Not every version of torch has all of them.
        _packet = getattr(aten, f"_foreach_{_name}", None)
        if _packet is not None and _overload in _packet.overloads():
            decomposes(getattr(_packet, _overload))(_each(_EACH.get(_name) or getattr(torch, _name)))
