"""Quantization: linear quantization, and products and convolutions of integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from onnx import TensorProto

from aotpack.export import ops
from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import CONTRIB, operator
from aotpack.export.onnx.ops.casts import cast_to
from aotpack.export.onnx.ops.elementwise import wide
from aotpack.export.onnx.ops.products import average_pool, conv, max_pool

Tensor = torch.Tensor
functional = torch.nn.functional

# Integers up to here have neighbours in float32.
_EXACT = 1 << 24


def scale_of(node: Node, x: Tensor, value: Tensor) -> Tensor:
    """A scale or zero point in a shape that broadcasts with `x`: of the tensor, of an axis, or of blocks of an axis."""
    if value.dim() == 0:
        return value
    if value.dim() == 1 and value.shape[0] == 1 and x.dim() != 1:
        return value.reshape([])
    axis = node.get("axis", 1)
    if value.dim() == 1 and x.dim() == 1:
        axis = 0
    axis = axis + x.dim() if axis < 0 else axis
    if not 0 <= axis < x.dim():
        raise node.error(f"the axis {axis} is out of range: the tensor has {x.dim()}")
    block = node.get("block_size", 0)
    if block:
        if value.dim() != x.dim():
            raise node.error(f"scales of blocks have {value.dim()} dims, the tensor has {x.dim()}")
        return value.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    if value.dim() != 1:
        raise node.error("scales have more than one dim, but the node has no block_size")
    if value.shape[0] == 1 and x.dim() == 1:
        return value
    shape = [1] * x.dim()
    shape[axis] = value.shape[0]
    return value.reshape(shape)


def integer_range(code: int) -> tuple[int, int] | None:
    """The least and the largest number of an integer type of ONNX; None for others."""
    bits = dtypes.bits_of(code)
    if bits is not None:
        return (
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtypes.torch_dtype(code).is_signed else (0, (1 << bits) - 1)
        )
    dtype = dtypes.torch_dtype(code)
    if dtype.is_floating_point or dtype == torch.bool:
        return None
    info = torch.iinfo(dtype)
    return int(info.min), int(info.max)


def quantized(x: Tensor, scale: Tensor, zero: Tensor | None, code: int, *, saturate: bool = True) -> Tensor:
    """`x / scale + zero`, rounded to the nearest (ties to even) and saturated, in the element type `code`."""
    ratio = x / scale
    limits = integer_range(code)
    if limits is None:
        return cast_to(ratio, code, saturate=saturate)
    exact = ratio.float() if ratio.dtype in (torch.float16, torch.bfloat16) else ratio
    rounded = torch.round(exact)
    if zero is not None:
        rounded = rounded + wide(zero).to(rounded.dtype)
    return rounded.clamp(*limits).to(dtypes.torch_dtype(code))


_BYTES = (TensorProto.UINT8, TensorProto.INT8)


def _is_plain(node: Node, x: Tensor | None, scale: Tensor) -> bool:
    """Whether numbers are of fp32, with a scale for all or for each of an axis."""
    float32 = scale.dtype == torch.float32 and (x is None or x.dtype == torch.float32)
    types = node.get("precision", 0) in (0, TensorProto.FLOAT) and node.get("output_dtype", 0) in (
        0,
        TensorProto.FLOAT,
        *_BYTES,
    )
    return float32 and types and not node.get("block_size", 0)


@operator("QuantizeLinear", since=10)
@operator("QuantizeLinear", domain=CONTRIB)
def quantize_linear(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    code = node.get("output_dtype", 0) or TensorProto.UINT8
    if zero is not None:
        code = node.type_of(2) or dtypes.code_of(zero.dtype)
    if _is_plain(node, x, scale) and code in _BYTES:
        zeros = None if zero is None else scale_of(node, x, zero)
        return ops.quantize(x, scale_of(node, x, scale), zeros, dtypes.torch_dtype(code))
    factors = scale_of(node, x, scale)
    zeros = None if zero is None or zero.dtype.is_floating_point else scale_of(node, x, zero)
    precision = node.get("precision", 0)
    dtype = dtypes.torch_dtype(precision) if precision else scale.dtype
    if x.dtype == torch.int32:
        x = x.to(torch.float32)
    elif x.dtype != dtype:
        # As numbers of the wider of the two.
        wider = dtype if precision else torch.promote_types(x.dtype, dtype)
        x, factors = x.to(wider), factors.to(wider)
    if precision:
        x, factors = x.to(dtype), factors.to(dtype)
    return quantized(x, factors, zeros, code, saturate=bool(node.get("saturate", 1)))


@operator("DequantizeLinear", since=10)
@operator("DequantizeLinear", domain=CONTRIB)
def dequantize_linear(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    output = node.get("output_dtype", 0)
    dtype = dtypes.torch_dtype(output) if output else scale.dtype
    if _is_plain(node, None, scale) and x.dtype in (torch.uint8, torch.int8) and node.type_of(0) in (0, *_BYTES):
        zeros = None if zero is None else scale_of(node, x, zero)
        return ops.dequantize(x, scale_of(node, x, scale), zeros)
    exact = torch.float64 if scale.dtype == torch.float64 else torch.float32
    numbers = wide(x).to(exact)
    if zero is not None and not zero.dtype.is_floating_point:
        if x.dtype == torch.int32:
            numbers = (x - scale_of(node, x, zero)).to(exact)
        else:
            numbers = numbers - wide(scale_of(node, x, zero)).to(exact)
    return (numbers * scale_of(node, x, scale).to(exact)).to(dtype)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Node, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = (high - low) / 255
    # Of zeros alone, any scale will do: ONNX Runtime has 1.
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.round((-low / scale).clamp(0, 255))
    y = (torch.round(x / scale) + zero).clamp(0, 255).to(torch.uint8)
    return y, scale, zero.to(torch.uint8)


# ---- products -------------------------------------------------------------------------------------------------------


def _by_rows(node: Node, zero: Tensor | None) -> Tensor | None:
    """A zero point of `a`: of all, or of each row."""
    if zero is None:
        return None
    zero = zero.to(torch.int32)
    return zero if zero.dim() != 1 else zero.reshape([]) if zero.shape[0] == 1 else zero.unsqueeze(-1)


def _by_columns(zero: Tensor | None) -> Tensor | None:
    if zero is None:
        return None
    zero = zero.to(torch.int32)
    return zero.reshape([]) if zero.dim() == 1 and zero.shape[0] == 1 else zero


def integer_product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """int32 `(a - a_zero) @ (b - b_zero)`.

    Args:
        a: uint8 or int8[…, m, k].
        b: uint8 or int8[…, k, n].
        a_zero: int32, of a shape that broadcasts with `a`.
        b_zero: int32, of a shape that broadcasts with `b`.
    """
    if b.dim() != 2 or a.dim() < 2:
        left = a.to(torch.int32) if a_zero is None else a.to(torch.int32) - a_zero
        right = b.to(torch.int32) if b_zero is None else b.to(torch.int32) - b_zero
        return torch.matmul(left, right)
    if b.dtype == torch.uint8:
        # There are kernels for int8 at the right: 128 less of each, and of the zero point.
        b = (b.to(torch.int16) - 128).to(torch.int8)
        b_zero = torch.full([], -128, dtype=torch.int32) if b_zero is None else b_zero - 128
    depth = a.shape[-1]
    rows = a.reshape(-1, depth)
    product = torch.ops.aten._int_mm.default(rows, b).reshape([*a.shape[:-1], b.shape[1]])
    if a_zero is not None:
        product = product - a_zero * b.sum(0, dtype=torch.int32)
    if b_zero is not None:
        sums = a.sum(-1, keepdim=True, dtype=torch.int32)
        product = product - sums * b_zero
        if a_zero is not None:
            product = product + depth * a_zero * b_zero
    return product


@operator("MatMulInteger", since=10)
def mat_mul_integer(
    node: Node, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return integer_product(a, b, _by_rows(node, a_zero), _by_columns(b_zero))


def _scale_of_rows(scale: Tensor) -> Tensor:
    return scale.unsqueeze(-1) if scale.dim() == 1 and scale.shape[0] != 1 else scale


@operator("QLinearMatMul", since=10)
@operator("QLinearMatMul", domain=CONTRIB)
def q_linear_mat_mul(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    if b.dim() == 2 and _is_single(a_scale, a_zero, y_scale, y_zero) and _have_kernels((a, a_scale), (b, b_scale)):
        y = torch.matmul(dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero))
        return stored(y, y_scale, y_zero, y_zero.dtype)
    product = integer_product(a, b, _by_rows(node, a_zero), _by_columns(b_zero))
    factor = _scale_of_rows(a_scale).float() * b_scale.float() / _scale_of_rows(y_scale).float()
    return requantized(product, factor, _scale_of_rows(y_zero))


# ---- integers as the numbers that they stand for ---------------------------------------------------------------------
#
# On CPUs, products between `quantize` and `dequantize` are computed on the integers.


def _have_kernels(*operands: tuple[Tensor, Tensor]) -> bool:
    """Whether all are bytes with scales of fp32."""
    return all(x.dtype in (torch.uint8, torch.int8) and scale.dtype == torch.float32 for x, scale in operands)


def _is_single(*values: Tensor | None) -> bool:
    """Whether each is a number for the whole tensor."""
    return all(value is None or all(size == 1 for size in value.shape) for value in values)


def _spread(value: Tensor, x: Tensor, axis: int) -> Tensor:
    """A scale or zero point of all, or of each element of an axis, in a shape that broadcasts with `x`; other shapes do
    already.
    """
    if _is_single(value):
        return value.reshape([])
    return value if value.dim() != 1 else value.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])


def dequantized(x: Tensor, scale: Tensor, zero: Tensor | None, axis: int = -1) -> Tensor:
    """The numbers that integers stand for."""
    scale = _spread(scale, x, axis)
    zero = None if zero is None else _spread(zero, x, axis)
    if _have_kernels((x, scale)):
        return ops.dequantize(x, scale, zero)
    numbers = x.to(torch.float32)
    return (numbers if zero is None else numbers - zero.to(torch.float32)) * scale


def stored(y: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Numbers as integers of `dtype`, with one scale for all."""
    scale = scale.reshape([])
    zero = None if zero is None else zero.reshape([])
    if dtype in (torch.uint8, torch.int8) and y.dtype == scale.dtype == torch.float32:
        return ops.quantize(y, scale, zero, dtype)
    return quantized(y, scale, zero, dtypes.code_of(dtype))


def requantized(sums: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    """`sums * factor + zero`, rounded and saturated, in the dtype of `zero`."""
    rounded = torch.round(sums.to(torch.float32) * factor) + zero.to(torch.float32)
    info = torch.iinfo(zero.dtype)
    return rounded.clamp(info.min, info.max).to(zero.dtype)


# ---- convolutions ---------------------------------------------------------------------------------------------------


def _centred(x: Tensor, zero: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    """`x - zero` as numbers of `dtype`; a zero point with several elements is that of an axis."""
    if zero is None:
        return x.to(dtype)
    if zero.dim() == 1 and zero.shape[0] != 1:
        zero = zero.reshape([-1 if i == axis else 1 for i in range(x.dim())])
    else:
        zero = zero.reshape([])
    return x.to(dtype) - zero.to(dtype)


def integer_convolution(node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Tensor:
    """int32 convolution of `x - x_zero` and `w - w_zero`, by kernels for floats whose sums are exact."""
    depth = math.prod(w.shape[1:])
    if depth * 255 * 255 < _EXACT:
        return conv(node, _centred(x, x_zero, 1, torch.float32), _centred(w, w_zero, 0, torch.float32)).to(torch.int32)
    if depth * 255 * 16 < _EXACT:
        # Of the weights first what 16 divides, then the rest.
        numbers = _centred(x, x_zero, 1, torch.float32)
        weights = _centred(w, w_zero, 0, torch.int32)
        high = weights >> 4
        sums = conv(node, numbers, high.to(torch.float32)).to(torch.int32)
        rest = conv(node, numbers, (weights - high * 16).to(torch.float32)).to(torch.int32)
        return sums * 16 + rest
    return conv(node, _centred(x, x_zero, 1, torch.float64), _centred(w, w_zero, 0, torch.float64)).to(torch.int32)


@operator("ConvInteger", since=10)
def conv_integer(
    node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    return integer_convolution(node, x, w, x_zero, w_zero)


@operator("QLinearConv", since=10)
def q_linear_conv(
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    added = None if bias is None else bias.to(torch.float32) * (x_scale * w_scale).reshape([-1])
    y = conv(node, dequantized(x, x_scale, x_zero), dequantized(w, w_scale, w_zero, 0), added)
    return stored(y, y_scale, y_zero, y_zero.dtype)


@operator("QLinearConv", domain=CONTRIB)
def q_linear_conv_by_layout(node: Node, x: Tensor, *rest: Any) -> Tensor:
    if not node.get("channels_last", 0):
        return q_linear_conv(node, x, *rest)
    return q_linear_conv(node, x.movedim(-1, 1), *rest).movedim(1, -1)


# ---- com.microsoft --------------------------------------------------------------------------------------------------


@operator("MatMulIntegerToFloat", domain=CONTRIB)
def mat_mul_integer_to_float(
    node: Node,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    product = integer_product(a, b, _by_rows(node, a_zero), _by_columns(b_zero))
    y = product.to(a_scale.dtype) * (_scale_of_rows(a_scale) * b_scale)
    return y if bias is None else y + bias


@operator("DynamicQuantizeMatMul", domain=CONTRIB)
def dynamic_quantize_mat_mul(
    node: Node, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    q, scale, zero = dynamic_quantize_linear(node, a)
    return mat_mul_integer_to_float(node, q, b, scale, b_scale, zero, b_zero, bias)


def _q_binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name, domain=CONTRIB)
    def compute(
        node: Node,
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor | None,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor | None,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Tensor:
        return stored(
            function(dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero)), y_scale, y_zero, a.dtype
        )


_q_binary("QLinearAdd", torch.add)
_q_binary("QLinearMul", torch.mul)


def _q_unary(name: str, function: Callable[[Node, Tensor], Tensor]) -> None:
    @operator(name, domain=CONTRIB)
    def compute(
        node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
    ) -> Tensor:
        return stored(function(node, dequantized(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


def _mean_over_images(node: Node, x: Tensor) -> Tensor:
    axes = range(1, x.dim() - 1) if node.get("channels_last", 0) else range(2, x.dim())
    return x.mean(list(axes), keepdim=True)


_q_unary("QLinearLeakyRelu", lambda node, x: functional.leaky_relu(x, node.get("alpha", 0.01)))
_q_unary("QLinearSigmoid", lambda node, x: torch.sigmoid(x))
_q_unary("QLinearGlobalAveragePool", _mean_over_images)


@operator("QLinearSoftmax", domain=CONTRIB)
def q_linear_softmax(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    value, axis = dequantized(x, x_scale, x_zero), node.get("axis", -1)
    if node.get("opset", 13) < 13:
        axis = axis % x.dim()
        rows = value.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return stored(torch.softmax(rows, 1).reshape(x.shape), y_scale, y_zero, x.dtype)
    return stored(torch.softmax(value, axis), y_scale, y_zero, x.dtype)


@operator("QLinearReduceMean", domain=CONTRIB)
def q_linear_reduce_mean(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    axes = node.get("axes", list(range(x.dim())))
    mean = dequantized(x, x_scale, x_zero).mean(axes, keepdim=bool(node.get("keepdims", 1)))
    return stored(mean, y_scale, y_zero, x.dtype)


@operator("QLinearConcat", domain=CONTRIB)
def q_linear_concat(node: Node, y_scale: Tensor, y_zero: Tensor, *inputs: Tensor) -> Tensor:
    parts = [dequantized(inputs[i], inputs[i + 1], inputs[i + 2]) for i in range(0, len(inputs), 3)]
    return stored(torch.cat(parts, node.require("axis")), y_scale, y_zero, inputs[0].dtype)


@operator("QLinearAveragePool", domain=CONTRIB)
def q_linear_average_pool(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    value = dequantized(x, x_scale, x_zero)
    if node.get("channels_last", 0):
        return stored(average_pool(node, value.movedim(-1, 1)).movedim(1, -1), y_scale, y_zero, x.dtype)
    return stored(average_pool(node, value), y_scale, y_zero, x.dtype)


@operator("QGemm", domain=CONTRIB)
def q_gemm(
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    a = a.t() if node.get("transA", 0) else a
    b = b.t() if node.get("transB", 0) else b
    factor = a_scale * b_scale * node.get("alpha", 1.0)
    if _is_single(a_scale) and _have_kernels((a, a_scale), (b, b_scale)):
        y = torch.matmul(dequantized(a, a_scale, a_zero), dequantized(b, b_scale * node.get("alpha", 1.0), b_zero))
        y = y if c is None else y + c.to(torch.float32) * factor
        return y if y_scale is None else stored(y, y_scale, y_zero, a.dtype if y_zero is None else y_zero.dtype)
    sums = integer_product(a, b, a_zero.to(torch.int32).reshape([]), _by_columns(b_zero))
    if c is not None:
        sums = sums + c
    if y_scale is None:
        return sums.to(torch.float32) * factor
    zero = torch.zeros([], dtype=a.dtype) if y_zero is None else y_zero
    return requantized(sums, factor / y_scale, zero)


@operator("NhwcMaxPool", domain=CONTRIB)
def nhwc_max_pool(node: Node, x: Tensor) -> Tensor:
    return max_pool(node, x.movedim(-1, 1)).movedim(1, -1)
