"""Operators that CPUs and GPUs compute by different functions of the user.

Such an operator stays a call in programs, and becomes what its function for the device calls when code is generated:
for CPUs `register_kernel("cpu")` of a `torch.library.triton_op`, for GPUs its Triton kernels or
`custom_kernel(triton=...)`. It writes to no argument: those that do are traced through (inlining.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotpack.export.custom_ops.kernels import operators_with_functions
from aotpack.export.custom_ops.python_kernels import python_kernel
from aotpack.export.torch_compat.library import custom_definition, custom_definitions
from aotpack.export.torch_compat.operators import OpOverload, operator_schema


def differs_by_device(op: OpOverload) -> bool:
    """Whether it is a `triton_op` with an implementation for CPUs."""
    known = custom_definition(operator_schema(op).name)
    if known is None or not known.is_triton_op:
        return False
    return "cpu" in known.kernels and not operator_schema(op).is_mutable


def functions_for_cpus() -> dict[OpOverload, Callable[..., Any]]:
    """By operator, the function that computes it on CPUs; those with a C++ kernel are left out."""
    found: dict[OpOverload, Callable[..., Any]] = {}
    for known in custom_definitions():
        if differs_by_device(known.operator):
            found[known.operator] = known.kernels["cpu"]
    for operator, kernel in operators_with_functions().items():
        found.pop(operator, None)
        if not kernel.sources and not kernel.objects:
            defined = custom_definition(operator_schema(operator).name)
            function = (
                python_kernel(operator) if defined is None else defined.kernels.get("cpu", defined.implementation)
            )
            if function is not None:
                found[operator] = function
    return found


def functions_for_gpus() -> dict[OpOverload, Callable[..., Any]]:
    """By operator, what `custom_kernel(triton=...)` has registered."""
    return {op: kernel.triton for op, kernel in operators_with_functions().items() if kernel.triton is not None}
