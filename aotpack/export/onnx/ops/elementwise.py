"""Elementwise operators: arithmetic, comparisons, functions, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known, as_tensor

Tensor = torch.Tensor

# torch computes little with these: the wider dtype holds every value.
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


def wide(x: Tensor) -> Tensor:
    """Unsigned integers in a dtype that torch computes with; uint64 keeps its bits."""
    wider = _WIDER.get(x.dtype)
    return x if wider is None else x.to(wider)


def in_wide(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Computes in a wider dtype if torch has no kernels for that of the first input, and returns to it."""
    dtype = inputs[0].dtype
    result = function(*(wide(x) for x in inputs))
    return result.to(dtype) if dtype in _WIDER and result.dtype == _WIDER[dtype] else result


def aligned(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """`b` for broadcasting as opsets before 7 have it: its axes are those of `a` from `axis` on."""
    if node.version >= 7 or "axis" not in node.attributes or not b.dim():
        return b
    axis = node.get("axis")
    axis = axis + a.dim() if axis < 0 else axis
    return b.reshape([*b.shape, *[1] * (a.dim() - axis - b.dim())])


def _binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name)
    def compute(node: Node, a: Tensor, b: Tensor) -> Tensor:
        return in_wide(function, a, aligned(node, a, b))


def _divide(a: Tensor, b: Any) -> Tensor:
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return a / b
    return torch.div(a, b, rounding_mode="trunc")


def _number(value: Tensor | Known | None) -> float | None:
    """The value of a constant number: code computes with it, and passes recognize formulas that have it."""
    if isinstance(value, Known) and value.dtype.is_floating_point and not value.shape and value.is_plain():
        return float(value.values.item())
    return None


def _arithmetic(name: str, function: Callable[[Tensor, Any], Tensor], *, commutes: bool = False) -> None:
    @operator(name, known=(0, 1))
    def compute(node: Node, a: Tensor | Known, b: Tensor | Known) -> Tensor:
        if commutes and _number(a) is not None:
            a, b = b, a
        x, number = as_tensor(a), _number(b)
        return in_wide(function, x, aligned(node, x, as_tensor(b))) if number is None else function(x, number)


_arithmetic("Add", torch.add, commutes=True)
_arithmetic("Sub", torch.sub)
_arithmetic("Mul", torch.mul, commutes=True)
_arithmetic("Div", _divide)
_binary("And", torch.logical_and)
_binary("Or", torch.logical_or)
_binary("Xor", torch.logical_xor)
_binary("Equal", torch.eq)
_binary("BitwiseAnd", torch.bitwise_and)
_binary("BitwiseOr", torch.bitwise_or)
_binary("BitwiseXor", torch.bitwise_xor)


def _ordered(x: Tensor) -> Tensor:
    """uint64 as int64 of the same order."""
    return x.view(torch.int64) ^ torch.iinfo(torch.int64).min if x.dtype == torch.uint64 else wide(x)


def _comparison(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name)
    def compute(node: Node, a: Tensor, b: Tensor) -> Tensor:
        return function(_ordered(a), _ordered(aligned(node, a, b)))


_comparison("Less", torch.lt)
_comparison("Greater", torch.gt)
_comparison("LessOrEqual", torch.le)
_comparison("GreaterOrEqual", torch.ge)


@operator("Mod")
def mod(node: Node, a: Tensor, b: Tensor) -> Tensor:
    function = torch.fmod if node.get("fmod", 0) else torch.remainder
    return in_wide(function, a, b)


@operator("Pow", known=(1,))
def pow_(node: Node, a: Tensor, b: Tensor | Known) -> Tensor:
    number = _number(b)
    if number is not None and a.dtype.is_floating_point:
        return torch.pow(a, number)
    b = aligned(node, a, as_tensor(b))
    if a.dtype == b.dtype and not a.dtype.is_floating_point:
        return in_wide(torch.pow, a, b)
    if not a.dtype.is_floating_point:
        # Exponents with a fraction, and negative ones.
        exact = b if b.dtype.is_floating_point else wide(b).to(torch.float64)
        if not b.dtype.is_floating_point:
            return in_wide(lambda x, y: torch.pow(x, y.clamp(min=0)), a, wide(b).to(wide(a).dtype))
        return torch.pow(wide(a).to(torch.float64), exact.to(torch.float64)).to(a.dtype)
    return torch.pow(a, wide(b).to(a.dtype) if b.dtype != a.dtype else b)


@operator("BitShift")
def bit_shift(node: Node, a: Tensor, b: Tensor) -> Tensor:
    left = node.require("direction") == "LEFT"
    if a.dtype != torch.uint64:
        function = torch.bitwise_left_shift if left else torch.bitwise_right_shift
        bits = a.dtype.itemsize * 8
        if not left and a.dtype.is_signed:
            return torch.bitwise_right_shift(a, b.clamp(max=bits - 1))
        shifted = in_wide(lambda x, y: function(x, y), a, b)
        return torch.where(wide(b) >= bits, torch.zeros_like(shifted), shifted)
    x, y = a.view(torch.int64), b.view(torch.int64)
    if left:
        result = torch.bitwise_left_shift(x, y)
    else:
        mask = torch.where(y == 0, -1, torch.bitwise_left_shift(torch.ones_like(y), 64 - y) - 1)
        result = torch.bitwise_right_shift(x, y) & mask
    return torch.where((y >= 64) | (y < 0), torch.zeros_like(result), result).view(torch.uint64)


@operator("BitwiseNot")
def bitwise_not(node: Node, x: Tensor) -> Tensor:
    return in_wide(torch.bitwise_not, x)


@operator("Sum")
def sum_(node: Node, *inputs: Tensor) -> Tensor:
    return functools.reduce(torch.add, inputs)


@operator("Mean")
def mean(node: Node, *inputs: Tensor) -> Tensor:
    return functools.reduce(torch.add, inputs) / len(inputs)


@operator("Max")
def max_(node: Node, *inputs: Tensor) -> Tensor:
    return _extreme(torch.maximum, inputs)


@operator("Min")
def min_(node: Node, *inputs: Tensor) -> Tensor:
    return _extreme(torch.minimum, inputs)


def _extreme(function: Callable[[Tensor, Tensor], Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    if inputs[0].dtype != torch.uint64:
        return functools.reduce(lambda a, b: in_wide(function, a, b), inputs)
    least = torch.iinfo(torch.int64).min
    return (functools.reduce(function, map(_ordered, inputs)) ^ least).view(torch.uint64)


@operator("Where")
def where(node: Node, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


@operator("Not")
def not_(node: Node, x: Tensor) -> Tensor:
    return torch.logical_not(x)


# ---- functions of one number ----------------------------------------------------------------------------------------


def _unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @operator(name)
    def compute(node: Node, x: Tensor) -> Tensor:
        return in_wide(function, x)


_unary("Abs", torch.abs)
_unary("Neg", torch.neg)
_unary("Sign", torch.sign)
_unary("Reciprocal", torch.reciprocal)
_unary("Exp", torch.exp)
_unary("Log", torch.log)
_unary("Sqrt", torch.sqrt)
_unary("Floor", torch.floor)
_unary("Ceil", torch.ceil)
_unary("Round", torch.round)
_unary("Erf", torch.erf)
_unary("Sigmoid", torch.sigmoid)
_unary("Tanh", torch.tanh)
_unary("Relu", torch.relu)
_unary("Sin", torch.sin)
_unary("Cos", torch.cos)
_unary("Tan", torch.tan)
_unary("Asin", torch.asin)
_unary("Acos", torch.acos)
_unary("Atan", torch.atan)
_unary("Sinh", torch.sinh)
_unary("Cosh", torch.cosh)
_unary("Asinh", torch.asinh)
_unary("Acosh", torch.acosh)
_unary("Atanh", torch.atanh)
_unary("Softsign", torch.nn.functional.softsign)
_unary("Mish", torch.nn.functional.mish)
_unary("HardSwish", torch.nn.functional.hardswish)
_unary("IsNaN", torch.isnan)


@operator("Identity", known=(0,))
def identity(node: Node, x: Any) -> Any:
    return x


@operator("IsInf")
def is_inf(node: Node, x: Tensor) -> Tensor:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if x.dtype.itemsize == 1:
        x = x.float()
    result = torch.zeros_like(x, dtype=torch.bool)
    if positive:
        result = result | (x == math.inf)
    if negative:
        result = result | (x == -math.inf)
    return result


@operator("Softplus")
def softplus(node: Node, x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x)


@operator("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    return torch.nn.functional.elu(x, node.get("alpha", 1.0))


@operator("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    return torch.nn.functional.celu(x, node.get("alpha", 1.0))


@operator("Selu")
def selu(node: Node, x: Tensor) -> Tensor:
    # Opsets before 6 round the defaults otherwise.
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@operator("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(x, node.get("alpha", 0.01))


@operator("PRelu")
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    if node.version < 7 and slope.dim() == 1 and x.dim() > 2:
        slope = slope.reshape(-1, *[1] * (x.dim() - 2))
    return in_wide(lambda a, s: torch.where(a < 0, a * s, a), x, slope)


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return torch.where(x > node.get("alpha", 1.0), x, torch.zeros_like(x))


@operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    if math.isclose(alpha, 1 / 6, rel_tol=1e-7) and beta == 0.5:
        # As torch exports its own, which is recognized as an activation.
        return torch.nn.functional.hardsigmoid(x)
    return (x * alpha + beta).clamp(0, 1)


@operator("Shrink")
def shrink(node: Node, x: Tensor) -> Tensor:
    bias, limit = node.get("bias", 0.0), node.get("lambd", 0.5)

    def compute(x: Tensor) -> Tensor:
        exact = x if x.is_floating_point() else x.float()
        result = torch.where(exact < -limit, exact + bias, torch.where(exact > limit, exact - bias, 0.0))
        return result.to(x.dtype)

    return in_wide(compute, x)


@operator("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate=node.get("approximate", "none"))


@operator("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node.get("alpha", 1.0) * x)


@operator("Clip", known=(1, 2))
def clip(node: Node, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    low, high = (limit.values.item() if isinstance(limit, Known) else limit for limit in (low, high))
    dtype, x = x.dtype, wide(x)
    if not isinstance(low, torch.Tensor) and not isinstance(high, torch.Tensor):
        # In one call, as activations are recognized.
        return (x if low is None and high is None else torch.clamp(x, low, high)).to(dtype)
    for limit, number, tensor in ((low, torch.clamp_min, torch.maximum), (high, torch.clamp_max, torch.minimum)):
        if isinstance(limit, torch.Tensor):
            x = tensor(x, wide(limit).to(x.dtype))
        elif limit is not None:
            x = number(x, limit)
    return x.to(dtype)
