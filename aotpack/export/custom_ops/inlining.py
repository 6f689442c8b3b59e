"""Traces through custom operators that are written in Python: an archive contains the torch operators that they call.

An operator defined by `torch.library` is opaque to torch.export, which asks its fake implementation for the result. An
archive needs what it computes. So while a model is traced, a call of it runs its implementation for the CPU on the
traced tensors, unless it has a kernel of the user (kernels.py). In a joint capture an operator with a backward of its
own stays a call until AOTAutograd has taken that backward, and is decomposed then.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.custom_ops.by_device import differs_by_device
from aotpack.export.custom_ops.kernels import kernel_of
from aotpack.export.custom_ops.known import IMPLEMENTATIONS
from aotpack.export.custom_ops.python_kernels import (
    ReplacingOperators,
    called,
    has_backward,
    python_kernel,
    python_operators,
)
from aotpack.export.custom_ops.triton_launches import launched_by
from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat.library import custom_definition, custom_definitions
from aotpack.export.torch_compat.operators import OpOverload, operator_schema


@contextlib.contextmanager
def custom_operators_inlined() -> Iterator[None]:
    """While active, calls of custom operators run their implementations.

    With gradients enabled, those that have a backward of their own are left alone (see `decompositions`).
    """
    with _Inlining():
        yield


def is_inlined(target: object) -> bool:
    """Whether calls of this operator run its implementation while `custom_operators_inlined` is active."""
    op = called(target, (), {})
    return op is not None and _definition(op) is not None


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """The implementations of all custom operators that have no kernel: backwards may call any of them."""
    operators = dict.fromkeys([*(known.operator for known in custom_definitions()), *python_operators()])
    found = {op: _definition(op) for op in operators}
    return {op: functools.partial(_traced, known) for op, known in found.items() if known is not None}


class _Inlining(ReplacingOperators):
    """Runs a custom operator's implementation instead of the operator."""

    def replacement(self, op: OpOverload) -> Callable[..., Any] | None:
        known = _definition(op)
        if known is None or (known.has_backward and torch.is_grad_enabled()):
            return None
        return functools.partial(_traced, known)


@dataclass(frozen=True)
class _Definition:
    """A custom operator in Python."""

    name: str
    run: Callable[..., Any]
    has_backward: bool


def _definition(op: OpOverload) -> _Definition | None:
    """What torch knows of a custom operator; None for all others, and for those that torch itself defines."""
    # A kernel of the user may be one for other devices: that is said when the archive is built.
    if kernel_of(op) is not None or differs_by_device(op):
        return None
    known = custom_definition(operator_schema(op).name)
    if known is None:
        run = python_kernel(op)
        return None if run is None else _Definition(op.name(), run, has_backward(op))
    if known.is_triton_op and "cpu" not in known.kernels:
        # Its launches are traced. Reports name the operator.
        return _Definition(known.name, launched_by(known.name)(known.implementation), known.has_backward)
    if known.implementation.__module__.partition(".")[0] == "torch" and not known.is_triton_op:
        return None
    run = IMPLEMENTATIONS.get(known.name) or known.kernels.get("cpu", known.kernels.get(None, known.implementation))
    return _Definition(known.name, run, known.has_backward)


def _traced(known: _Definition, *args: Any, **kwargs: Any) -> Any:
    try:
        return known.run(*args, **kwargs)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"the custom operator {known.name} cannot be traced: its implementation fails on traced tensors with "
            f"{type(error).__name__}: {_first_sentence(error)}{model_lines.at_line(error)}",
            hint="an archive has no Python: implement the operator with torch operators only, without numpy, "
            "data_ptr() and the values of tensors, register a C++ kernel (docs/custom_ops.md), or leave that part "
            "outside the archive",
        ) from error


def _first_sentence(error: Exception) -> str:
    """Without the advice that torch gives to those who compile."""
    return str(error).partition("\n")[0].partition(". If ")[0]
