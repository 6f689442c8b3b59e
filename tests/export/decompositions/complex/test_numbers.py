"""Complex functions over pairs of real tensors: torch's values, and as few digits lost as torch loses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aotpack.export.decompositions.complex import numbers
from aotpack.export.decompositions.complex.numbers import Pair, joined

DTYPES = [torch.complex64, torch.complex128]
FUNCTIONS = [
    "reciprocal", "square", "sgn", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid",
    "sinh", "cosh", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh",
]  # fmt: skip
# Rounding of the argument alone costs this many units: exp's large arguments, sigmoid's poles.
UNITS = {"sigmoid": 1e3, "exp2": 300.0, "acosh": 1e8}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0, 0.5, 1e30, -1e-30]


def random_parts(count: int) -> Tensor:
    scale = torch.tensor([1e-30, 1e-8, 1e-3, 0.1, 1.0, 1.0, 3.0, 30.0])[torch.randint(0, 8, (count,))]
    values = torch.randn(count, dtype=torch.float64) * scale
    return torch.where(torch.rand(count) < 0.1, torch.tensor(SPECIAL)[torch.randint(0, 4, (count,))], values)


def pair_of(z: Tensor) -> Pair:
    return Pair(z.real.clone(), z.imag.clone())


def apply(name: str, z: Tensor) -> Tensor:
    function: Callable[[Pair], Pair] = getattr(numbers, name)
    return joined(function(pair_of(z)))


def same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(FUNCTIONS.index(name))
    z = torch.complex(random_parts(20000), random_parts(20000)).to(dtype)
    got, want = apply(name, z), getattr(torch, name)(z)
    wide = getattr(torch, name)(z.to(torch.complex128))
    unit = 1.2e-7 if dtype == torch.complex64 else 2.3e-16
    tiny = 1e-36 if dtype == torch.complex64 else 1e-290
    plain = want.isfinite() & wide.isfinite() & (wide.abs() > tiny)
    assert plain.sum() > 10000
    # Next to 1 the arc cosine is 0, and its error is relative to 1, as torch's is.
    scale = wide.abs().clamp(min=1.0) if name == "acos" else wide.abs()
    error = ((got.to(torch.complex128) - wide).abs() / scale)[plain]
    assert float(error.max()) <= unit * UNITS.get(name, 12.0)
    # What is infinite or no number is so in torch as well.
    for a, b in ((got.real, want.real), (got.imag, want.imag)):
        assert int((a.isfinite() != b.isfinite()).sum()) <= (1 if name in ("sigmoid", "acos") else 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_and_quotients_of_special_values(dtype: torch.dtype) -> None:
    parts = torch.tensor([*SPECIAL, 3e38, 1e-45])
    z = torch.complex(*torch.meshgrid(parts, parts, indexing="ij")).flatten().to(dtype)
    a, b = (t.flatten() for t in torch.broadcast_tensors(z[:, None], z[None]))
    product, quotient = joined(pair_of(a) * pair_of(b)), joined(pair_of(a) / pair_of(b))
    assert bool((same(product.real, (a * b).real) & same(product.imag, (a * b).imag)).all())
    # By NaN torch divides as the compiler likes.
    known = ~(b.real.isnan() | b.imag.isnan())
    want = a / b
    close = lambda x, y: same(x, y) | ((x - y).abs() <= 1e-6 * want.abs() + 1e-44)  # noqa: E731
    assert bool((close(quotient.real, want.real) & close(quotient.imag, want.imag))[known].all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_powers(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    unit = 1e-6 if dtype == torch.complex64 else 1e-14
    a, b = torch.randn(5000, dtype=dtype), torch.randn(5000, dtype=dtype) * 2
    torch.testing.assert_close(joined(numbers.power(pair_of(a), pair_of(b))), a**b, rtol=30 * unit, atol=unit)
    zero = torch.zeros(3, dtype=dtype)
    exponent = torch.tensor([1 + 1j, 2.0, 0.5], dtype=dtype)
    torch.testing.assert_close(joined(numbers.power(pair_of(zero), pair_of(exponent))), zero**exponent)


def test_infinite_arguments() -> None:
    for name in ("sqrt", "log", "atan", "atanh", "asin", "asinh", "reciprocal", "exp"):
        z = torch.tensor([complex(math.inf, 1), complex(-math.inf, -2), complex(3, math.inf), complex(0.5, -math.inf)])
        z = z[:2] if name == "exp" else z
        got, want = apply(name, z), getattr(torch, name)(z)
        torch.testing.assert_close(got.real, want.real, equal_nan=True)
        torch.testing.assert_close(got.imag, want.imag, equal_nan=True)
