"""Registers decompositions of operators on complex tensors, with their shared helpers.

Whatever they return is joined by `aten.complex`, and what they take apart goes through `aten.view_as_real`: where one
meets the other, nothing is left of both (aotpack/export/torch_compat/inductor/complex_graph.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.complex.numbers import Pair, joined, pair, real_dtype
from aotpack.export.decompositions.table import decomposes


def complex_decomposes(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like `decomposes`, for calls in which an argument or the asked dtype is complex; others are not touched."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def decompose(*args: Any, **kwargs: Any) -> Any:
            kinds = set(_complex_dtypes(args)) | set(_complex_dtypes(kwargs.values()))
            if not kinds or torch.complex32 in kinds:
                return NotImplemented
            return function(*args, **kwargs)

        decomposes(*operators)(decompose)
        return function

    return register


def _complex_dtypes(values: Iterable[Any]) -> Iterable[torch.dtype]:
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype.is_complex:
                yield value.dtype
        elif isinstance(value, torch.dtype):
            if value.is_complex:
                yield value
        elif isinstance(value, complex):
            yield torch.complex64
        elif isinstance(value, (list, tuple)):
            yield from _complex_dtypes(value)


def common_dtype(*values: Any) -> torch.dtype:
    """Of tensors and numbers that an operator computes with. KeyError in what follows where it is complex32."""
    dtype = values[0].dtype if len(values) == 1 else torch.result_type(values[0], values[1])
    for value in values[2:]:
        dtype = torch.promote_types(dtype, value.dtype if isinstance(value, Tensor) else dtype)
    return dtype


def operand(value: Any, dtype: torch.dtype) -> Pair:
    """A tensor or a number as complex `dtype`."""
    real = real_dtype(dtype)
    if not isinstance(value, Tensor):
        return Pair(value.real, value.imag) if isinstance(value, complex) else Pair(value, 0.0)
    if value.dtype.is_complex:
        parts = pair(value)
        return Pair(parts.re.to(real), parts.im.to(real))
    re = value.to(real)
    return Pair(re, torch.zeros_like(re))


def operands(*values: Any) -> list[Pair]:
    dtype = common_dtype(*values)
    return [operand(value, dtype) for value in values]


def by_parts(operator: Any) -> Callable[..., Any]:
    """Computes `operator` on the real parts and on the imaginary parts of its complex arguments."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        real = operator(*_each(args, 0), **dict(zip(kwargs, _each(kwargs.values(), 0), strict=True)))
        imaginary = operator(*_each(args, 1), **dict(zip(kwargs, _each(kwargs.values(), 1), strict=True)))
        if isinstance(real, Tensor):
            return joined(Pair(real, imaginary))
        return type(real)(joined(Pair(re, im)) for re, im in zip(real, imaginary, strict=True))

    return decompose


def _each(values: Iterable[Any], which: int) -> list[Any]:
    """The parts that `which` names of complex values; the others themselves."""
    result: list[Any] = []
    for value in values:
        if isinstance(value, Tensor) and value.dtype.is_complex:
            parts = pair(value)
            result.append(parts.im if which else parts.re)
        elif isinstance(value, complex):
            result.append(value.imag if which else value.real)
        elif isinstance(value, torch.dtype) and value.is_complex:
            result.append(real_dtype(value))
        elif isinstance(value, (list, tuple)):
            result.append(type(value)(_each(value, which)))
        else:
            result.append(value)
    return result
