"""Complex numbers as pairs of real tensors: TorchInductor generates code for real ones alone.

The functions follow torch's on the CPU, in their special values too where those are torch's choice. Where the naive
formula loses digits or overflows, it is Kahan's: "Branch cuts for complex elementary functions, or much ado about
nothing's sign bit", 1987.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_COMPLEX = {real: complex_ for complex_, real in _REAL.items()}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the parts of complex numbers of `dtype`. KeyError where there is none that we compute with (complex32)."""
    return _REAL[dtype]


def complex_dtype(dtype: torch.dtype) -> torch.dtype:
    return _COMPLEX[dtype]


@dataclass(frozen=True)
class Pair:
    """A complex tensor, or a complex number whose parts are Python's. Both parts have one dtype; sizes broadcast."""

    re: Any
    im: Any

    def conj(self) -> Pair:
        return Pair(self.re, -self.im)

    def times_i(self) -> Pair:
        return Pair(-self.im, self.re)

    def times_minus_i(self) -> Pair:
        return Pair(self.im, -self.re)

    def __neg__(self) -> Pair:
        return Pair(-self.re, -self.im)

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Pair) -> Pair:
        return Pair(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def scaled(self, factor: Any) -> Pair:
        """Times a real number, part by part."""
        return Pair(self.re * factor, self.im * factor)

    def __truediv__(self, other: Pair) -> Pair:
        # As torch divides: by the larger part first, so that squares neither overflow nor vanish.
        c, d = (_like(part, self) for part in (other.re, other.im))
        real = c.abs() >= d.abs()
        large, small = torch.where(real, c, d), torch.where(real, d, c)
        ratio = small / large
        scale = (large + small * ratio).reciprocal()
        re = torch.where(real, self.re + self.im * ratio, self.re * ratio + self.im) * scale
        im = torch.where(real, self.im - self.re * ratio, self.im * ratio - self.re) * scale
        zero = large == 0
        return Pair(torch.where(zero, self.re / c.abs(), re), torch.where(zero, self.im / d.abs(), im))


def pair(z: Tensor) -> Pair:
    """The parts of a complex tensor."""
    parts: Tensor = torch.ops.aten.view_as_real.default(z)
    return Pair(parts.select(-1, 0), parts.select(-1, 1))


def joined(value: Pair) -> Tensor:
    """The complex tensor of two parts."""
    re, im = torch.broadcast_tensors(value.re, value.im)
    return torch.complex(re, im)


def _like(part: Any, other: Pair) -> Tensor:
    """A part of a number as a tensor of the dtype that the parts of `other` have."""
    if isinstance(part, Tensor):
        return part
    return torch.full((), part, dtype=other.re.dtype, device=other.re.device)


def magnitude(z: Pair) -> Tensor:
    return torch.hypot(z.re, z.im)


def angle(z: Pair) -> Tensor:
    return torch.atan2(z.im, z.re)


def reciprocal(z: Pair) -> Pair:
    one = torch.ones_like(z.re)
    return Pair(one, torch.zeros_like(one)) / z


def square(z: Pair) -> Pair:
    return z * z


def sgn(z: Pair) -> Pair:
    size = magnitude(z)
    return Pair(torch.where(size == 0, size, z.re / size), torch.where(size == 0, size, z.im / size))


def sqrt(z: Pair) -> Pair:
    # Halves before the sum, so that it does not overflow.
    root = (magnitude(z) * 0.5 + z.re.abs() * 0.5).sqrt()
    other = z.im.abs() / (root * 2)
    right = z.re >= 0
    re = torch.where(right, root, other)
    im = torch.where(right, other, root)
    zero = root == 0
    re, im = torch.where(zero, root, re), torch.where(zero, root, im)
    # An infinite imaginary part makes both infinite, whatever the real part is.
    endless = z.im.isinf()
    return Pair(torch.where(endless, z.im.abs(), re), torch.copysign(torch.where(endless, z.im.abs(), im), z.im))


def rsqrt(z: Pair) -> Pair:
    return reciprocal(sqrt(z))


def _grown(size: Tensor, factor: Tensor, x: Tensor, share: float) -> Tensor:
    """size * factor, where `size` grows with |x| as share * e^|x|; finite even where `size` is not, and 0 for 0."""
    sign = size.clamp(-1, 1)
    root = (x.abs() * 0.5).exp()
    far = root * (factor * share) * root * sign
    return torch.where(factor == 0, factor * sign, torch.where(size.isinf(), far, size * factor))


def exp(z: Pair) -> Pair:
    size = z.re.exp()
    return Pair(_grown(size, z.im.cos(), z.re, 1.0), _grown(size, z.im.sin(), z.re, 1.0))


def exp2(z: Pair) -> Pair:
    return exp(z.scaled(math.log(2)))


def expm1(z: Pair) -> Pair:
    half = (z.im * 0.5).sin()
    return Pair(z.re.expm1() * z.im.cos() - 2 * half * half, z.re.exp() * z.im.sin())


def log(z: Pair) -> Pair:
    size = magnitude(z)
    # Next to the unit circle the logarithm is small, and `size` has lost its digits.
    x, y = torch.maximum(z.re.abs(), z.im.abs()), torch.minimum(z.re.abs(), z.im.abs())
    near = 0.5 * ((x - 1) * (x + 1) + y * y).log1p()
    return Pair(torch.where((size > 0.7) & (size < 1.4), near, size.log()), angle(z))


def log2(z: Pair) -> Pair:
    return log(z).scaled(1 / math.log(2))


def log10(z: Pair) -> Pair:
    return log(z).scaled(1 / math.log(10))


def log1p(z: Pair) -> Pair:
    one = z.re + 1
    # Near 0 the logarithm of the magnitude, whose square is 1 + x (2 + x) + y^2, is small.
    near = 0.5 * (z.re * (z.re + 2) + z.im * z.im).log1p()
    far = torch.hypot(one, z.im).log()
    small = torch.maximum(z.re.abs(), z.im.abs()) < 0.5
    return Pair(torch.where(small, near, far), torch.atan2(z.im, one))


def power(base: Pair, exponent: Pair) -> Pair:
    result = exp(exponent * log(base))
    # The logarithm of 0 is infinite.
    zero = (base.re == 0) & (base.im == 0)
    nothing = _nothing(exponent)
    re = torch.where(zero, torch.where(nothing, 1.0, 0.0).to(result.re.dtype), result.re)
    return Pair(re, torch.where(zero, 0.0, result.im))


def _nothing(z: Pair) -> Tensor:
    if isinstance(z.re, Tensor):
        return ~nonzero(z)
    return torch.full((), z.re == 0 and z.im == 0, dtype=torch.bool)


def sigmoid(z: Pair) -> Pair:
    e = exp(-z)
    return reciprocal(Pair(e.re + 1, e.im))


def sinh(z: Pair) -> Pair:
    return Pair(_grown(z.re.sinh(), z.im.cos(), z.re, 0.5), _grown(z.re.cosh(), z.im.sin(), z.re, 0.5))


def cosh(z: Pair) -> Pair:
    return Pair(_grown(z.re.cosh(), z.im.cos(), z.re, 0.5), _grown(z.re.sinh(), z.im.sin(), z.re, 0.5))


def tanh(z: Pair) -> Pair:
    t = z.im.tan()
    beta = 1 + t * t
    s = z.re.sinh()
    rho = (1 + s * s).sqrt()
    below = 1 + beta * s * s
    # Where sinh squared would be too large, the limit.
    size = z.re.abs()
    far = size > (20.0 if z.re.dtype == torch.float64 else 10.0)
    tail = 4 * z.im.sin() * z.im.cos() * (-2 * size).exp()
    re = torch.where(far, torch.copysign(torch.ones_like(s), z.re), beta * rho * s / below)
    return Pair(re, torch.where(far, tail, t / below))


def sin(z: Pair) -> Pair:
    return sinh(z.times_i()).times_minus_i()


def cos(z: Pair) -> Pair:
    return cosh(z.times_i())


def tan(z: Pair) -> Pair:
    return tanh(z.times_i()).times_minus_i()


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """The square roots of 1 - z and of 1 + z."""
    return sqrt(Pair(1 - z.re, -z.im)), sqrt(Pair(1 + z.re, z.im))


def asin(z: Pair) -> Pair:
    a, b = _roots(z)
    endless = z.re.isinf() | z.im.isinf()
    re = torch.atan2(z.re, torch.where(endless, z.im.abs(), (a * b).re))
    im = torch.asinh((a.conj() * b).im)
    return Pair(re, torch.where(endless, torch.copysign(torch.full_like(im, math.inf), z.im), im))


def acos(z: Pair) -> Pair:
    a, b = _roots(z)
    return Pair(2 * torch.atan2(a.re, b.re), torch.asinh((b.conj() * a).im))


def acosh(z: Pair) -> Pair:
    a, b = sqrt(Pair(z.re - 1, z.im)), sqrt(Pair(z.re + 1, z.im))
    return Pair(torch.asinh((a.conj() * b).re), 2 * torch.atan2(a.im, b.re))


def asinh(z: Pair) -> Pair:
    return asin(z.times_i()).times_minus_i()


def atanh(z: Pair) -> Pair:
    left, y = 1 - z.re, z.im
    # log |(1 + z) / (1 - z)| / 2, with the real part's sign outside: what is next to 1 stays exact.
    x = z.re.abs()
    near = (1 - x) * (1 - x) + y * y
    size = torch.where(near > 1e-20, 0.25 * (4 * x / near).log1p(), 0.5 * (math.log(2) - torch.hypot(1 - x, y).log()))
    endless = x.isinf() | y.isinf()
    re = torch.copysign(torch.where(endless, 0.0, size), z.re)
    im = 0.5 * torch.atan2(2 * y, left * (1 + z.re) - y * y)
    return Pair(re, torch.where(endless, torch.copysign(torch.full_like(im, math.pi / 2), y), im))


def atan(z: Pair) -> Pair:
    return atanh(z.times_i()).times_minus_i()


def equal(a: Pair, b: Pair) -> Tensor:
    same: Tensor = (a.re == b.re) & (a.im == b.im)
    return same


def nonzero(z: Pair) -> Tensor:
    found: Tensor = (z.re != 0) | (z.im != 0)
    return found
