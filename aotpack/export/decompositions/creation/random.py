"""Random numbers, as functions of seeds that TorchInductor draws for all of a call at once.

Uniform and normal numbers are TorchInductor's own Philox, computed where they are used; other distributions are
transforms of these, finite for every number that can be drawn, or aotpack operators (ops/random.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops import random as ours
from aotpack.export.ops import sampler_gradients
from aotpack.export.ops.bounds import check_bounds
from aotpack.export.torch_compat.functions import inductor_seed

_INT64 = torch.iinfo(torch.int64)
# Bits of the significand, the hidden one among them.
_DIGITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
_SUBNORMAL = {torch.bfloat16: -133, torch.float16: -24, torch.float32: -149, torch.float64: -1074}


def _seed(device: Any = None) -> Tensor:
    return inductor_seed(torch.device("cpu") if device is None else torch.device(device))


def _unit(like: Tensor) -> Tensor:
    """Uniform in [0, 1), of `like`'s sizes and strides: float32, or float64 with all of its bits."""
    if like.dtype != torch.float64:
        return torch.rand_like(like, dtype=torch.float32)
    return torch.randint_like(like, 1 << 53, dtype=torch.int64).to(torch.float64) * 2.0**-53


def _standard_normal(like: Tensor) -> Tensor:
    return torch.randn_like(like, dtype=torch.float64 if like.dtype == torch.float64 else torch.float32)


def _below(bound: float, dtype: torch.dtype) -> float:
    """The greatest number of `dtype` that is less than `bound`, a finite number in the range of `dtype`."""
    significand, exponent = math.frexp(bound)
    # Just below a power of two, numbers are twice as close.
    step = max(exponent - _DIGITS[dtype] - (significand == 0.5), _SUBNORMAL[dtype])
    if bound == 0:
        step = _SUBNORMAL[dtype]
    return math.ldexp(math.ceil(math.ldexp(bound, -step)) - 1, step)


# ---- uniform and normal ----------------------------------------------------------------------------------------------


@decomposes(aten.rand.default)
def _rand(
    size: Sequence[Any], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype.is_complex:
        part = _real_dtype(dtype)
        return torch.complex(*(torch.rand(size, dtype=part, device=device) for _ in range(2)))
    if dtype in (torch.bfloat16, torch.float16):
        # The greatest float32 below 1 would round to 1.
        return torch.rand(size, dtype=torch.float32, device=device).clamp(max=_below(1.0, dtype)).to(dtype)
    return NotImplemented


@decomposes(aten.randn.default)
def _randn(
    size: Sequence[Any], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_complex:
        return NotImplemented
    part = _real_dtype(dtype)
    # The variance is that of both parts together.
    return torch.complex(*(torch.randn(size, dtype=part, device=device) * math.sqrt(0.5) for _ in range(2)))


def _real_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.complex128 else torch.float32


@decomposes(aten.uniform.default)
def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Any:
    if x.is_complex():
        return NotImplemented
    value = _unit(x) * (high - low) + low
    if isinstance(high, (int, float)) and math.isfinite(high):
        value = value.clamp(max=max(_below(float(high), x.dtype), low))
    return value.to(x.dtype)


def _scaled_normal(z: Tensor, mean: Any, std: Any, dtype: torch.dtype) -> Any:
    return (z * std + mean).to(dtype)


@decomposes(aten.normal_functional.default)
def _normal_functional(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    if x.is_complex():
        return torch.randn(x.shape, dtype=x.dtype, device=x.device) * std + mean
    return _scaled_normal(_standard_normal(x), mean, std, x.dtype)


def _checked_std(std: Tensor) -> Tensor:
    return check_bounds(std, 0.0, math.inf, "normal expects all elements of std >= 0.0")  # type: ignore[no-any-return]


@decomposes(aten.normal.Tensor_float)
def _normal_tensor_float(mean: Tensor, std: float = 1.0, generator: Any = None) -> Any:
    if mean.is_complex():
        return torch.randn_like(mean) * std + mean
    return _scaled_normal(_standard_normal(mean), mean, std, mean.dtype)


@decomposes(aten.normal.float_Tensor)
def _normal_float_tensor(mean: float, std: Tensor, generator: Any = None) -> Any:
    return _scaled_normal(_standard_normal(std), mean, _checked_std(std), std.dtype)


@decomposes(aten.normal.Tensor_Tensor)
def _normal_tensor_tensor(mean: Tensor, std: Tensor, generator: Any = None) -> Any:
    std = _checked_std(std)
    shape = torch.broadcast_shapes(mean.shape, std.shape)
    wide = torch.float64 if mean.dtype == torch.float64 else torch.float32
    if mean.is_complex():
        return torch.randn(shape, dtype=mean.dtype, device=mean.device) * std + mean
    return _scaled_normal(torch.randn(shape, dtype=wide, device=mean.device), mean, std, mean.dtype)


@decomposes(aten.normal.float_float)
def _normal_float_float(
    mean: float,
    std: float,
    size: Sequence[Any],
    generator: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Any:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return _normal_functional(torch.empty(size, dtype=dtype, device=device), mean, std)


@decomposes(aten.log_normal.default)
def _log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, generator: Any = None) -> Any:
    return (_standard_normal(x) * std + mean).exp().to(x.dtype)


# ---- by the inverse of the distribution function ---------------------------------------------------------------------


def _positive_unit(like: Tensor) -> Tensor:
    """As `_unit`, with half of its least number in place of 0."""
    return _unit(like).clamp(min=2.0**-54 if like.dtype == torch.float64 else 2.0**-32)


@decomposes(aten.exponential.default)
def _exponential(x: Tensor, lambd: float = 1.0, generator: Any = None) -> Any:
    value = torch.log1p(-_positive_unit(x)) / -lambd
    # Never 0: draws are divisors of samplers, and 0 has no density.
    return value.clamp(min=math.ldexp(1.0, _SUBNORMAL[x.dtype])).to(x.dtype)


@decomposes(aten.cauchy.default)
def _cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, generator: Any = None) -> Any:
    most = torch.finfo(x.dtype).max
    value = torch.tan((_positive_unit(x) - 0.5) * math.pi) * sigma + median
    return value.clamp(-most, most).to(x.dtype)


@decomposes(aten.geometric.default)
def _geometric(x: Tensor, p: float, generator: Any = None) -> Any:
    # In double: a small p needs many bits, whatever the result has.
    u = torch.randint_like(x, 1 << 53, dtype=torch.int64).to(torch.float64) * 2.0**-53
    trials = torch.floor(torch.log1p(-u) / torch.log1p(torch.full((), -p, dtype=torch.float64, device=x.device))) + 1
    if x.dtype == torch.int64:
        trials = trials.clamp(max=2.0**62)
    elif not x.dtype.is_floating_point:
        trials = trials.clamp(max=torch.iinfo(x.dtype).max)
    return trials.to(x.dtype)


# ---- Bernoulli and dropout -------------------------------------------------------------------------------------------


def _checked_probability(p: Tensor) -> Tensor:
    message = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."
    return check_bounds(p, 0.0, 1.0, message)  # type: ignore[no-any-return]


@decomposes(aten.bernoulli.default)
def _bernoulli(p: Tensor, *, generator: Any = None) -> Any:
    return (torch.rand(p.shape, dtype=torch.float32, device=p.device) < _checked_probability(p)).to(p.dtype)


@decomposes(aten.bernoulli.p)
def _bernoulli_p(x: Tensor, p: float = 0.5, *, generator: Any = None) -> Any:
    return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


@decomposes(aten.bernoulli.Tensor)
def _bernoulli_tensor(x: Tensor, p: Tensor, *, generator: Any = None) -> Any:
    return (torch.rand_like(x, dtype=torch.float32) < _checked_probability(p)).to(x.dtype)


@decomposes(aten.native_dropout.default)
def _native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0 or p == 1 or x.dtype not in (torch.bfloat16, torch.float16):
        return NotImplemented
    # TorchInductor would compare numbers of x's dtype, of which few are near p.
    kept = torch.rand_like(x, dtype=torch.float32) > p
    return kept * x * float(1.0 / (1.0 - p)), kept


# ---- integers --------------------------------------------------------------------------------------------------------


@decomposes(aten.randint.low)
def _randint(
    low: Any,
    high: Any,
    size: Sequence[Any],
    *,
    dtype: Any = torch.int64,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Any:
    if isinstance(low, int) and isinstance(high, int):
        span = high - low
        # TorchInductor's remainder of a 64-bit number is as good as even for a short range and even for a power of two.
        if 0 < span <= 1 << 40 or (0 < span < 1 << 63 and span & (span - 1) == 0):
            return NotImplemented
    # With dynamic sizes only a call knows whether there is a number in the range.
    return ours.random_integers(low, high - 1, size, _seed(device)).to(dtype)


@decomposes(aten.randint_like.Tensor)
def _randint_like_tensor(x: Tensor, high: Tensor, *, dtype: Any = None, **_: Any) -> Any:
    # The same range for all elements; it depends on data. The remainder of 63 bits is even but for high / 2^63.
    high = check_bounds(high.to(torch.int64), 1.0, math.inf, "random_ expects 'from' to be less than 'to'")
    drawn = ours.random_integers(0, _INT64.max, x.shape, _seed(x.device)) % high
    return _with_strides_of(x, drawn.to(x.dtype if dtype is None else dtype))


def _with_strides_of(x: Tensor, values: Tensor) -> Tensor:
    return aten.copy.default(torch.empty_like(x, dtype=values.dtype), values)  # type: ignore[no-any-return]


def _at_most(value: int, dtype: torch.dtype) -> int:
    """The greatest integer up to `value` that `dtype` has."""
    step = max(value.bit_length() - _DIGITS[dtype], 0) if dtype.is_floating_point else 0
    return value >> step << step


def _random(x: Tensor, low: Any, last: Any) -> Tensor:
    if isinstance(low, int) and isinstance(last, int):
        # What is drawn is rounded, and must not leave the range.
        least, most = -_at_most(-low, x.dtype), _at_most(last, x.dtype)
        low, last = (least, most) if least <= most else (low, last)
    values = ours.random_integers(low, last, x.shape, _seed(x.device)).to(x.dtype)
    return _with_strides_of(x, values)


@decomposes(aten.random.default)
def _random_default(x: Tensor, *, generator: Any = None) -> Any:
    return _random(x, 0, ours.last_integer(x.dtype))


@decomposes(aten.random.to)
def _random_to(x: Tensor, to: Any, *, generator: Any = None) -> Any:
    return _random(x, 0, to - 1)


@decomposes(ours.random_between)
def _random_between(x: Tensor, low: Any, last: Any) -> Any:
    return _random(x, low, last)


@decomposes(aten.randperm.default)
def _randperm(
    n: Any, *, dtype: Any = torch.int64, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    return ours.random_permutation(n, _seed(device), torch.int64 if dtype is None else dtype)


# ---- by rejection ----------------------------------------------------------------------------------------------------


@decomposes(aten.multinomial.default)
def _multinomial(weights: Tensor, num_samples: Any, replacement: bool = False, *, generator: Any = None) -> Any:
    return ours.random_multinomial(weights, num_samples, replacement, _seed(weights.device))


@decomposes(aten.poisson.default)
def _poisson(rate: Tensor, generator: Any = None) -> Any:
    return ours.random_poisson(rate, _seed(rate.device))


@decomposes(aten.binomial.default)
def _binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Any:
    return ours.random_binomial(count, prob.expand(count.shape), _seed(count.device))


@decomposes(aten._standard_gamma.default, sampler_gradients.sample_gamma)
def _standard_gamma(alpha: Tensor, generator: Any = None) -> Any:
    return ours.random_gamma(alpha, _seed(alpha.device))


@decomposes(aten._sample_dirichlet.default, sampler_gradients.sample_dirichlet)
def _sample_dirichlet(alpha: Tensor, generator: Any = None) -> Any:
    return ours.random_dirichlet(alpha, _seed(alpha.device))


@decomposes(aten._standard_gamma_grad.default)
def _standard_gamma_grad(alpha: Tensor, sample: Tensor) -> Any:
    return sampler_gradients.standard_gamma_grad(alpha, sample)


@decomposes(aten._dirichlet_grad.default)
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Any:
    return sampler_gradients.dirichlet_grad(x, alpha, total)


# ---- operators with a generator, which is none in a graph ------------------------------------------------------------


def _without_generator(operator: Any) -> Callable[..., Any]:
    def decompose(*args: Any, generator: Any = None, **kwargs: Any) -> Any:
        return NotImplemented if generator is not None else operator(*args, **kwargs)

    return decompose


for _with, _plain in (
    (aten.rand.generator, aten.rand.default),
    (aten.randn.generator, aten.randn.default),
    (aten.randint.generator, aten.randint.default),
    (aten.randint.low_generator, aten.randint.low),
    (aten.randperm.generator, aten.randperm.default),
):
    decomposes(_with)(_without_generator(_plain))
