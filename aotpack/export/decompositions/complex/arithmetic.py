"""Arithmetic, functions, reductions and products of complex tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.complex import numbers
from aotpack.export.decompositions.complex.numbers import Pair, joined, pair, real_dtype
from aotpack.export.decompositions.complex.registration import by_parts, complex_decomposes, operand, operands
from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.complex import complex_cumprod, complex_logcumsumexp

for _operator in (aten.neg.default, aten.mean.default, aten.mean.dim, aten.sum.default, aten.cumsum.default):
    complex_decomposes(_operator)(by_parts(_operator))

_UNARY: dict[Any, Callable[[Pair], Pair]] = {
    aten.reciprocal.default: numbers.reciprocal, aten.square.default: numbers.square, aten.sgn.default: numbers.sgn,
    aten.sqrt.default: numbers.sqrt, aten.rsqrt.default: numbers.rsqrt, aten.exp.default: numbers.exp,
    aten.exp2.default: numbers.exp2, aten.expm1.default: numbers.expm1, aten.log.default: numbers.log,
    aten.log2.default: numbers.log2, aten.log10.default: numbers.log10, aten.log1p.default: numbers.log1p,
    aten.sigmoid.default: numbers.sigmoid, aten.sinh.default: numbers.sinh, aten.cosh.default: numbers.cosh,
    aten.tanh.default: numbers.tanh, aten.sin.default: numbers.sin, aten.cos.default: numbers.cos,
    aten.tan.default: numbers.tan, aten.asin.default: numbers.asin, aten.acos.default: numbers.acos,
    aten.atan.default: numbers.atan, aten.asinh.default: numbers.asinh, aten.acosh.default: numbers.acosh,
    aten.atanh.default: numbers.atanh,
}  # fmt: skip


def _unary(function: Callable[[Pair], Pair]) -> Callable[[Tensor], Tensor]:
    return lambda z: joined(function(pair(z)))


for _operator, _function in _UNARY.items():
    complex_decomposes(_operator)(_unary(_function))


@complex_decomposes(aten.abs.default)
def _abs(z: Tensor) -> Any:
    return numbers.magnitude(pair(z))


@complex_decomposes(aten.angle.default)
def _angle(z: Tensor) -> Any:
    return numbers.angle(pair(z))


@decomposes(aten.polar.default)
def _polar(size: Tensor, angle: Tensor) -> Any:
    return joined(Pair(size * angle.cos(), size * angle.sin()))


@complex_decomposes(aten.add.Tensor, aten.add.Scalar)
def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    x, y = operands(a, b)
    return joined(x + _times(y, alpha))


@complex_decomposes(aten.sub.Tensor, aten.sub.Scalar)
def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    x, y = operands(a, b)
    return joined(x - _times(y, alpha))


@complex_decomposes(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    x, y = operands(a, b)
    return joined(y - _times(x, alpha))


def _times(value: Pair, factor: Any) -> Pair:
    if isinstance(factor, complex):
        return value * Pair(factor.real, factor.imag)
    return value if factor == 1 else value.scaled(factor)


@complex_decomposes(aten.mul.Tensor, aten.mul.Scalar)
def _mul(a: Any, b: Any) -> Any:
    x, y = operands(a, b)
    return joined(x * y)


@complex_decomposes(aten.div.Tensor, aten.div.Scalar)
def _div(a: Any, b: Any) -> Any:
    x, y = operands(a, b)
    return joined(x / y)


@complex_decomposes(aten.addcmul.default)
def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Any:
    start, p, q = operands(x, a, b)
    return joined(start + _times(p, value) * q)


@complex_decomposes(aten.addcdiv.default)
def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Any:
    start, p, q = operands(x, a, b)
    return joined(start + _times(p, value) / q)


@complex_decomposes(aten.lerp.Scalar, aten.lerp.Tensor)
def _lerp(start: Tensor, end: Tensor, weight: Any) -> Any:
    a, b = operands(start, end)
    w = operand(weight, start.dtype)
    way, one = b - a, Pair(1.0, 0.0)
    # From the nearer end, as torch does.
    near, far = a + w * way, b - way * (one - w)
    if isinstance(weight, Tensor):
        first = numbers.magnitude(w) < 0.5
        return joined(Pair(torch.where(first, near.re, far.re), torch.where(first, near.im, far.im)))
    return joined(near if abs(weight) < 0.5 else far)


@complex_decomposes(aten.ldexp.Tensor)
def _ldexp(x: Tensor, exponent: Tensor) -> Any:
    if exponent.is_complex():
        return x * torch.pow(2.0, exponent)
    z = pair(x)
    return joined(z.scaled(torch.pow(2.0, exponent).to(z.re.dtype)))


_POWERS: dict[Any, Callable[[Pair], Pair]] = {
    0.5: numbers.sqrt,
    -0.5: numbers.rsqrt,
    1: lambda z: z,
    2: numbers.square,
    3: lambda z: z * z * z,
    -1: numbers.reciprocal,
    -2: lambda z: numbers.reciprocal(z * z),
}


@complex_decomposes(aten.pow.Tensor_Scalar)
def _pow_scalar(base: Tensor, exponent: Any) -> Any:
    x, y = operands(base, exponent)
    if exponent == 0:
        return torch.ones_like(joined(x))
    known = _POWERS.get(exponent)
    return joined(known(x) if known is not None else numbers.power(x, y))


@complex_decomposes(aten.pow.Tensor_Tensor)
def _pow_tensor(base: Tensor, exponent: Tensor) -> Any:
    x, y = operands(base, exponent)
    return joined(numbers.power(x, y))


@complex_decomposes(aten.pow.Scalar)
def _pow_of_scalar(base: Any, exponent: Tensor) -> Any:
    dtype = torch.result_type(base, exponent)
    if base == 1:
        return torch.ones_like(exponent, dtype=dtype)
    number = torch.full((), 0.0, dtype=real_dtype(dtype))
    return joined(
        numbers.power(Pair(number + complex(base).real, number + complex(base).imag), operand(exponent, dtype))
    )


@complex_decomposes(aten.eq.Tensor, aten.eq.Scalar)
def _eq(a: Any, b: Any) -> Any:
    return numbers.equal(*operands(a, b))


@complex_decomposes(aten.ne.Tensor, aten.ne.Scalar)
def _ne(a: Any, b: Any) -> Any:
    return ~numbers.equal(*operands(a, b))


@complex_decomposes(aten.isnan.default)
def _isnan(z: Tensor) -> Any:
    return pair(z).re.isnan() | pair(z).im.isnan()


@complex_decomposes(aten.isinf.default)
def _isinf(z: Tensor) -> Any:
    return pair(z).re.isinf() | pair(z).im.isinf()


@complex_decomposes(aten.isfinite.default)
def _isfinite(z: Tensor) -> Any:
    return pair(z).re.isfinite() & pair(z).im.isfinite()


def _truth(value: Any) -> Any:
    return numbers.nonzero(pair(value)) if isinstance(value, Tensor) and value.is_complex() else value


def _of_truth(operator: Any) -> Callable[..., Any]:
    """An operator that asks of its arguments only whether they are 0."""
    return lambda *args, **kwargs: operator(*map(_truth, args), **kwargs)


for _operator in (
    aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default, aten.logical_not.default,
    aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims,
    aten.nonzero.default, aten.nonzero_static.default, aten.count_nonzero.dim_IntList, aten.count_nonzero.default,
):  # fmt: skip
    complex_decomposes(_operator)(_of_truth(_operator))


@complex_decomposes(aten.sum.dim_IntList)
def _sum(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    z = operand(x, dtype or x.dtype)
    return joined(Pair(*(aten.sum.dim_IntList(part, dim, keepdim) for part in (z.re, z.im))))


@complex_decomposes(aten.var.correction)
def _var(z: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    parts = (aten.var.correction(p, dim, correction=correction, keepdim=keepdim) for p in (pair(z).re, pair(z).im))
    return sum(parts)


@complex_decomposes(aten.std.correction)
def _std(z: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return _var(z, dim, correction=correction, keepdim=keepdim).sqrt()


@complex_decomposes(aten.var_mean.correction)
def _var_mean(
    z: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    axes = list(range(z.dim())) if dim is None else list(dim)
    return _var(z, dim, correction=correction, keepdim=keepdim), z.mean(axes, keepdim=keepdim)


@complex_decomposes(aten.linalg_vector_norm.default)
def _vector_norm(
    z: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    real = None if dtype is None else real_dtype(dtype) if dtype.is_complex else dtype
    if not z.is_complex():
        return aten.linalg_vector_norm.default(z, ord, dim, keepdim, dtype=real)
    return aten.linalg_vector_norm.default(numbers.magnitude(pair(z)), ord, dim, keepdim, dtype=real)


@complex_decomposes(aten.cumprod.default)
def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return complex_cumprod(joined(operand(x, dtype or x.dtype)), dim)


@complex_decomposes(aten.logcumsumexp.default)
def _logcumsumexp(z: Tensor, dim: int) -> Any:
    return complex_logcumsumexp(z, dim)


@complex_decomposes(aten.prod.default)
def _prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return _prod_dim(x.flatten(), 0, dtype=dtype)


@complex_decomposes(aten.prod.dim_int)
def _prod_dim(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    z = joined(operand(x, dtype or x.dtype))
    if z.dim() == 0:
        return z
    # The product of nothing is 1.
    sizes = [1 if axis == dim % z.dim() else size for axis, size in enumerate(z.shape)]
    products = complex_cumprod(torch.cat([torch.ones(sizes, dtype=z.dtype), z], dim), dim)
    last = products.select(dim, -1)
    return last.unsqueeze(dim) if keepdim else last


def _product(multiply: Callable[[Tensor, Tensor], Tensor], a: Pair, b: Pair) -> Pair:
    """Of complex matrices and the like, by four products of real ones."""
    return Pair(
        multiply(a.re, b.re) - multiply(a.im, b.im),
        multiply(a.re, b.im) + multiply(a.im, b.re),
    )


@complex_decomposes(aten.mm.default)
def _mm(a: Tensor, b: Tensor) -> Any:
    return joined(_product(torch.mm, pair(a), pair(b)))


@complex_decomposes(aten.bmm.default)
def _bmm(a: Tensor, b: Tensor) -> Any:
    return joined(_product(torch.bmm, pair(a), pair(b)))


@complex_decomposes(aten.mv.default)
def _mv(a: Tensor, b: Tensor) -> Any:
    return _mm(a, b.unsqueeze(1)).squeeze(1)


@complex_decomposes(aten.dot.default)
def _dot(a: Tensor, b: Tensor) -> Any:
    product = pair(a) * pair(b)
    return joined(Pair(product.re.sum(), product.im.sum()))


@complex_decomposes(aten.vdot.default)
def _vdot(a: Tensor, b: Tensor) -> Any:
    product = pair(a).conj() * pair(b)
    return joined(Pair(product.re.sum(), product.im.sum()))


def _added(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Any:
    total = _times(pair(product), alpha)
    # With 0 what is added to does not count, NaN or not.
    return joined(total if beta == 0 else _times(pair(x), beta) + total)


@complex_decomposes(aten.addmm.default)
def _addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(x, _mm(a, b), beta, alpha)


@complex_decomposes(aten.baddbmm.default)
def _baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(x, _bmm(a, b), beta, alpha)


@complex_decomposes(aten.addmv.default)
def _addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(x, _mv(a, b), beta, alpha)


@complex_decomposes(aten.convolution.default)
def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Any:
    result = _product(lambda a, b: aten.convolution.default(a, b, None, *rest), pair(x), pair(weight))
    if bias is None:
        return joined(result)
    sizes = [-1] + [1] * (x.dim() - 2)
    return joined(result + Pair(pair(bias).re.view(sizes), pair(bias).im.view(sizes)))
