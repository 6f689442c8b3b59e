"""Division of integers, whose divisor may be 0, and remainders and rounded quotients of floating numbers.

Of integers, eager raises. Generated kernels would divide, which ends the process on x86, as the least integer over -1
does. So no kernel divides by 0 or -1: a divisor of 0 becomes an error of the call, and what is divided by -1 changes
its sign.

Of floating numbers, TorchInductor rounds the quotient: the remainder of 1e10 and 3 is 0 then, and that of 5 and
infinity NaN. Eager goes by `fmod`, which is exact (ATen/native/cpu/BinaryOpsKernel.cpp, c10/util/generic_math.h), and
so do these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes, fixed

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _safe(divisor: Any) -> bool:
    """Whether a divisor is known not to be 0, nor -1."""
    from aotpack.export.torch_compat.symbolic_shapes import statically_known_true

    if isinstance(divisor, Tensor):
        return False
    return bool(statically_known_true(divisor > 0) or statically_known_true(divisor < -1))


def _divided(x: Any, y: Any) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """The quotient rounded to zero, the rest, the divisor, and where the divisor is -1 (and was taken for 1).

    None where the division is not of integers, or known to be of no harm.
    """
    dtype = torch.result_type(x, y)
    if dtype not in _INTEGERS or _safe(y):
        return None
    device = next(value.device for value in (x, y) if isinstance(value, Tensor))
    a, b = (
        value.to(dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=dtype, device=device)
        for value in (x, y)
    )
    zero = b == 0
    a, b = torch.broadcast_tensors(a, b)
    if not fixed(*a.shape):
        # Where there is nothing to divide, 0 is no error.
        zero = zero.expand(a.shape)
    if all(not fixed(size) or size != 0 for size in a.shape):
        aten._assert_async.msg(zero.logical_not().all(), "ZeroDivisionError")
    minus = torch.zeros_like(b, dtype=torch.bool) if dtype == torch.uint8 else b == -1
    b = torch.where((b == 0) | minus, 1, b)
    quotient = torch.ops.prims.div(a, b)
    return quotient, a - quotient * b, b, minus


def _rounded_down(rest: Tensor, divisor: Tensor) -> Tensor:
    """Where the quotient rounded to zero is above the exact one."""
    return (rest != 0) & ((rest < 0) != (divisor < 0))


def _floating(x: Any, y: Any) -> tuple[Tensor, Tensor] | None:
    """Both as tensors of the result's dtype; None unless that is a floating dtype."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return None
    device = next(value.device for value in (x, y) if isinstance(value, Tensor))
    a, b = (
        value.to(dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=dtype, device=device)
        for value in (x, y)
    )
    return a, b


def _rest(a: Tensor, b: Tensor) -> Tensor:
    """`fmod`. Of GPUs' it is 0 where the quotient is below the normal numbers."""
    rest = torch.fmod(a, b)
    return rest if a.device.type == "cpu" else torch.where(a.abs() < b.abs(), a, rest)


def _floored_floating(a: Tensor, b: Tensor) -> Tensor:
    rest = _rest(a, b)
    exact = a / b
    quotient = (a - rest) / b - _rounded_down(rest, b).to(rest.dtype)
    rounded = quotient.floor()
    rounded = torch.where(quotient - rounded > 0.5, rounded + 1, rounded)
    rounded = torch.where(quotient == 0, torch.copysign(torch.zeros_like(exact), exact), rounded)
    return torch.where(b == 0, exact, rounded)


def _truncated(x: Any, y: Any) -> Any:
    parts = _divided(x, y)
    if parts is None:
        return NotImplemented
    quotient, _, _, minus = parts
    return torch.where(minus, -quotient, quotient)


def _floored(x: Any, y: Any) -> Any:
    if (floating := _floating(x, y)) is not None:
        return _floored_floating(*floating)
    parts = _divided(x, y)
    if parts is None:
        return NotImplemented
    quotient, rest, divisor, minus = parts
    return torch.where(minus, -quotient, quotient - _rounded_down(rest, divisor).to(quotient.dtype))


@decomposes(aten.fmod.Tensor, aten.fmod.Scalar)
def _fmod(x: Any, y: Any) -> Any:
    parts = _divided(x, y)
    return NotImplemented if parts is None else parts[1]


@decomposes(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def _remainder(x: Any, y: Any) -> Any:
    if (floating := _floating(x, y)) is not None:
        rest, divisor = _rest(*floating), floating[1]
        return torch.where(_rounded_down(rest, divisor), rest + divisor, rest)
    parts = _divided(x, y)
    if parts is None:
        return NotImplemented
    _, rest, divisor, _ = parts
    return torch.where(_rounded_down(rest, divisor), rest + divisor, rest)


@decomposes(aten.floor_divide.default, aten.floor_divide.Scalar)
def _floor_divide(x: Any, y: Any) -> Any:
    return _floored(x, y)


@decomposes(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return NotImplemented
    return _floored(x, y) if rounding_mode == "floor" else _truncated(x, y)
