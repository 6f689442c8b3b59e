"""Casts between element types."""

from __future__ import annotations

import torch
from onnx import TensorProto

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator

Tensor = torch.Tensor


@operator("Cast")
def cast(node: Node, x: Tensor) -> Tensor:
    code = node.require("to")
    if isinstance(code, str):
        # Before opset 6.
        code = TensorProto.DataType.Value(code)
    return cast_to(x, code, saturate=bool(node.get("saturate", 1)), mode=node.get("round_mode", "up"))


@operator("CastLike")
def cast_like(node: Node, x: Tensor, like: Tensor) -> Tensor:
    code = node.type_of(1) or dtypes.code_of(like.dtype)
    return cast_to(x, code, saturate=bool(node.get("saturate", 1)), mode=node.get("round_mode", "up"))


def cast_to(x: Tensor, code: int, *, saturate: bool = True, mode: str = "up") -> Tensor:
    """A cast to an element type of ONNX.

    Args:
        x: the tensor.
        code: of `onnx.TensorProto`.
        saturate: numbers beyond the range of a float of 8 bits become its largest, else infinite or NaN.
        mode: how numbers become powers of two: "up", "down" or "nearest".
    """
    dtype = dtypes.torch_dtype(code)
    bits = dtypes.bits_of(code)
    if bits is not None:
        return _to_few_bits(x, dtype, bits)
    if code in _SMALL_FLOATS:
        return _to_grid(x, *_SMALL_FLOATS[code]).to(dtype)
    if code == TensorProto.FLOAT8E8M0:
        return _to_power(x, mode, saturate=saturate)
    if dtype in _FLOAT8:
        exact = x.to(torch.float32) if x.dtype not in (torch.float32, torch.float64) else x
        limit = torch.finfo(dtype).max
        if saturate:
            return exact.clamp(-limit, limit).to(dtype)
        beyond = exact.abs() >= _FIRST_BEYOND[dtype] if dtype in _FIRST_BEYOND else exact.abs() > _LAST[dtype]
        excess = torch.copysign(torch.full_like(exact, _EXCESS[dtype]), exact)
        return torch.where(beyond, excess, exact.clamp(-limit, limit)).to(dtype)
    if x.dtype.is_floating_point and dtype in (torch.uint16, torch.uint32, torch.uint64):
        return x.to(torch.int64).to(dtype)
    return x.to(dtype)


_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
# What numbers beyond the range become: NaN where there is no infinity.
_EXCESS = {
    torch.float8_e4m3fn: torch.nan,
    torch.float8_e4m3fnuz: torch.nan,
    torch.float8_e5m2: torch.inf,
    torch.float8_e5m2fnuz: torch.nan,
}
# The middle between the largest number and what would follow it. It is rounded to the even one of the two: to the
# largest number of e4m3fn alone.
_LAST = {torch.float8_e4m3fn: 464.0}
_FIRST_BEYOND = {torch.float8_e4m3fnuz: 248.0, torch.float8_e5m2: 61440.0, torch.float8_e5m2fnuz: 61440.0}

# Mantissa bits, the least exponent, and the largest number.
_SMALL_FLOATS: dict[int, tuple[int, int, float]] = {
    TensorProto.FLOAT4E2M1: (1, 0, 6.0),
    TensorProto.FLOAT6E2M3: (3, 0, 7.5),
    TensorProto.FLOAT6E3M2: (2, -2, 28.0),
}


def _to_few_bits(x: Tensor, dtype: torch.dtype, bits: int) -> Tensor:
    """The lowest bits of whole numbers."""
    low = x.to(torch.int32) & (2**bits - 1)
    return (torch.where(low >= 2 ** (bits - 1), low - 2**bits, low) if dtype.is_signed else low).to(dtype)


def _to_grid(x: Tensor, mantissa: int, least: int, largest: float) -> Tensor:
    """The nearest numbers with these mantissa bits, ties to even; numbers beyond the range become the largest."""
    exact = x.to(torch.float32)
    _, exponent = torch.frexp(exact.abs())
    step = torch.ldexp(torch.ones_like(exact), (exponent - 1).clamp(min=least) - mantissa)
    rounded = torch.round(exact / step) * step
    rounded = torch.where(exact.isinf(), exact, rounded).clamp(-largest, largest)
    return torch.where(exact.isnan(), torch.zeros_like(exact), rounded)


def _to_power(x: Tensor, mode: str, *, saturate: bool) -> Tensor:
    exact = x.to(torch.float32)
    fraction, exponent = torch.frexp(exact)
    # frexp has fractions from 1/2 to 1.
    match mode:
        case "up":
            exponent = torch.where(fraction == 0.5, exponent - 1, exponent)
        case "down":
            exponent = exponent - 1
        case "nearest":
            exponent = torch.where(fraction >= 0.75, exponent, exponent - 1)
        case _:
            raise OnnxError(f"the rounding mode {mode!r} is unknown")
    limited = exponent.clamp(-127, 127) if saturate else exponent.clamp(min=-127)
    power = torch.ldexp(torch.ones_like(exact), limited)
    valid = (exact >= 0) & (limited <= 127) & ~exact.isnan()
    power = torch.where(exact == 0, torch.full_like(exact, 2.0**-127), power)
    power = torch.where(exact.isinf() & (exact > 0), 2.0**127 if saturate else torch.nan, power)
    return torch.where(valid, power, torch.nan).to(torch.bfloat16)
