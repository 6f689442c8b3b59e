"""The operators that random programs are made of, and how their arguments are drawn.

An entry draws a call: `draw(generator, pool)` picks tensors of the pool by position (`Ref`), asks for fresh inputs
(`Fresh`) and draws sizes, dims and numbers. Calls that eager refuses are drawn again, so entries need not be careful.

What an operator does to rounding errors decides where it may stand:

- `ROUNDS`: continuous, its result may differ in the last places;
- `MOVES`: rearranges, selects or negates elements: exact where its arguments are;
- `DECIDES`: not continuous (floor, comparisons, argmax): an error in the last place becomes a whole one, so arguments
  must be exact, and then the result is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

ROUNDS, MOVES, DECIDES = "rounds", "moves", "decides"
# Few elements: compiling takes the time.
_SIZES = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 16, 17, 33)
_MOST_ELEMENTS = 3000


@dataclass(frozen=True)
class Ref:
    """The value at a position of the pool."""

    index: int


@dataclass(frozen=True)
class Fresh:
    """A new input.

    Attributes:
        shape: its sizes.
        dtype: its dtype; int64 with `below` holds indices in [`least`, `below`).
        below: see `dtype`.
        least: see `dtype`.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    below: int = 9
    least: int = -9


@dataclass(frozen=True)
class Known:
    """What drawing knows of a value of the pool."""

    value: torch.Tensor
    exact: bool


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Draw = Callable[[random.Random, "Pool"], Arguments]


class Unfit(Exception):
    """The pool has no arguments for this operator."""


class Pool:
    """Values that a call can have as arguments."""

    def __init__(self, generator: random.Random, values: Sequence[Known], exact: bool) -> None:
        self._generator, self._values, self._exact = generator, values, exact

    def pick(self, kind: str = "f", *, dim: int | None = None, like: Ref | None = None) -> Ref:
        """A value of a kind (letters of `f`loat, `i`nt, `b`ool), of `dim` dims, that broadcasts with `like`."""
        fit = []
        for i, known in enumerate(self._values):
            x = known.value
            if (self._exact and not known.exact) or _letter(x.dtype) not in kind:
                continue
            if (dim is None or x.dim() == dim) and (like is None or _broadcasts(self.of(like), x)):
                # The later, the likelier: programs are to be deep.
                fit += [Ref(i)] * (1 + 3 * i // len(self._values))
        if not fit:
            raise Unfit
        return self._generator.choice(fit)

    def of(self, ref: Ref) -> torch.Tensor:
        """The value."""
        return self._values[ref.index].value


def _letter(dtype: torch.dtype) -> str:
    return "f" if dtype.is_floating_point else "b" if dtype == torch.bool else "i"


def _broadcasts(x: torch.Tensor, y: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(x.shape, y.shape).numel() <= _MOST_ELEMENTS
    except RuntimeError:
        return False


def shape(generator: random.Random) -> tuple[int, ...]:
    """Sizes of an input."""
    while True:
        sizes = tuple(generator.choice(_SIZES) for _ in range(generator.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))))
        if torch.Size(sizes).numel() <= 600:
            return sizes


def _number(generator: random.Random) -> float:
    return generator.choice((0.5, -1.5, 2.0, 0.0, 1.0, -0.25, 3.0, generator.uniform(-4, 4)))


def _dim(generator: random.Random, x: torch.Tensor) -> int:
    if not x.dim():
        raise Unfit
    return generator.randrange(-x.dim(), x.dim())


def _unary(kind: str = "f", *numbers: Any) -> Draw:
    return lambda g, pool: ((pool.pick(kind), *(n(g) if callable(n) else n for n in numbers)), {})


def _binary(kind: str = "f") -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        first = pool.pick(kind)
        second: Any = _number(g) if g.random() < 0.2 else pool.pick(kind, like=first)
        return (first, second), {}

    return draw


def _tensors(kind: str, *more: str) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        first = pool.pick(kind)
        return (first, *(pool.pick(other, like=first) for other in more)), {}

    return draw


def _reduced(kind: str = "f", *, several: bool = True) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick(kind)
        dims = pool.of(x).dim()
        if several and (not dims or g.random() < 0.3):
            return (x,), {}
        some = g.sample(range(dims), g.randint(1, dims)) if several else _dim(g, pool.of(x))
        return (x, some), {"keepdim": g.random() < 0.5}

    return draw


def _along(kind: str = "f", **more: Any) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick(kind)
        return (x,), {"dim": _dim(g, pool.of(x)), **{k: v(g) if callable(v) else v for k, v in more.items()}}

    return draw


def _flag(g: random.Random) -> bool:
    return g.random() < 0.5


def _reshape(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    sizes = list(pool.of(x).shape)
    if not sizes:
        return (x, [1]), {}
    if len(sizes) > 1 and g.random() < 0.6:
        at = g.randrange(len(sizes) - 1)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    else:
        at = g.randrange(len(sizes))
        parts = [n for n in range(1, sizes[at] + 1) if sizes[at] % n == 0] or [1]
        part = g.choice(parts)
        sizes[at : at + 1] = [part, sizes[at] // part]
    return (x, sizes), {}


def _permute(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dims = pool.of(x).dim()
    return (x, g.sample(range(dims), dims)), {}


def _sliced(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    n = pool.of(x).shape[dim]
    return (x, dim, g.randint(-n - 1, n), g.randint(-n, n + 2), g.randint(1, 3)), {}


def _narrow(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    n = pool.of(x).shape[dim]
    start = g.randint(0, n)
    return (x, dim, start, g.randint(0, n - start)), {}


def _joined(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    same = [x] + [y for y in (pool.pick("fib", like=x) for _ in range(2)) if pool.of(y).shape == pool.of(x).shape]
    return (same, g.randrange(-pool.of(x).dim(), pool.of(x).dim() + 1)), {}


def _expand(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    sizes = [g.choice((n, 3)) if n == 1 else n for n in pool.of(x).shape]
    return (x, [*[g.randint(1, 3)] * g.randint(0, 1), *sizes]), {}


def _repeat(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    return (x, [g.choice((1, 2, 3, 0)) for _ in pool.of(x).shape]), {}


def _unfold(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    return (x, dim, g.randint(1, max(1, pool.of(x).shape[dim])), g.randint(1, 3)), {}


def _padded(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fi")
    dims = pool.of(x).dim()
    mode = g.choice(("constant", "constant", "reflect", "replicate", "circular"))
    count = g.randint(1, max(1, dims)) if mode == "constant" else max(1, dims - g.choice((1, 2)))
    least = -1 if mode == "constant" else 0
    return (x, [g.randint(least, 2) for _ in range(2 * count)], mode), {}


def _rolled(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    return (x, g.randint(-5, 5), _dim(g, pool.of(x))), {}


def _flipped(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    return (x, [_dim(g, pool.of(x))]), {}


def _diagonal(g: random.Random, pool: Pool) -> Arguments:
    return (pool.pick("fib"), g.randint(-3, 3)), {}


def _rows(least: int) -> Draw:
    """x[indices] along a dim."""

    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick("fib")
        dim = _dim(g, pool.of(x))
        n = pool.of(x).shape[dim]
        if not n:
            raise Unfit
        return (x, dim, Fresh((g.choice((0, 1, 4, 9)),), torch.int64, n, least and -n)), {}

    return draw


def _gather(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    n = pool.of(x).shape[dim]
    if not n:
        raise Unfit
    sizes = [g.randint(0 if m == 0 else 1, m) for m in pool.of(x).shape]
    return (x, dim, Fresh(tuple(sizes), torch.int64, n, 0)), {}


def _scatter(kind: str = "fi") -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick(kind)
        dim = _dim(g, pool.of(x))
        n = pool.of(x).shape[dim]
        if not n:
            raise Unfit
        sizes = tuple(pool.of(x).shape)
        return (x, dim, Fresh(sizes, torch.int64, n, 0), Fresh(sizes, pool.of(x).dtype)), {}

    return draw


def _index_add(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fi")
    dim = _dim(g, pool.of(x)) % pool.of(x).dim()
    sizes = list(pool.of(x).shape)
    n, sizes[dim] = sizes[dim], g.choice((1, 5))
    if not n:
        raise Unfit
    return (x, dim, Fresh((sizes[dim],), torch.int64, n, 0), Fresh(tuple(sizes), pool.of(x).dtype)), {}


def _topk(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fi")
    dim = _dim(g, pool.of(x))
    return (x, g.randint(0, pool.of(x).shape[dim]), dim, g.random() < 0.5), {}


def _matrix(least: int) -> Draw:
    """A tensor and a matrix that it can be multiplied by."""

    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick("f")
        value = pool.of(x)
        if value.dim() < least:
            raise Unfit
        width = g.choice((1, 2, 5, 16, 17))
        batch = tuple(value.shape[:-2]) if least == 3 or g.random() < 0.3 else ()
        return (x, Fresh((*batch, value.shape[-1], width), value.dtype)), {}

    return draw


def _linear(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f")
    value = pool.of(x)
    if not value.dim():
        raise Unfit
    width = g.choice((1, 3, 8, 16, 33))
    bias = [Fresh((width,), value.dtype)] if g.random() < 0.5 else []
    return (x, Fresh((width, value.shape[-1]), value.dtype), *bias), {}


def _conv(dims: int) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick("f", dim=g.choice((dims + 1, dims + 2)))
        value = pool.of(x)
        channels = value.shape[-dims - 1]
        groups = g.choice([n for n in (1, 1, 2, 3, channels) if n and channels % n == 0])
        out = groups * g.choice((1, 2, 4))
        weight = Fresh((out, channels // groups, *(g.randint(1, 3) for _ in range(dims))), value.dtype)
        bias = Fresh((out,), value.dtype) if g.random() < 0.5 else None
        return (x, weight, bias, g.randint(1, 2), g.randint(0, 2), g.choice((1, 1, 2)), groups), {}

    return draw


def _layer_norm(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f")
    value = pool.of(x)
    count = g.randint(1, max(1, min(2, value.dim())))
    sizes = tuple(value.shape[-count:]) if value.dim() else ()
    scale = [Fresh(sizes, value.dtype)] if g.random() < 0.5 else []
    return (x, list(sizes), *scale), {}


def _group_norm(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=g.choice((2, 3, 4)))
    channels = pool.of(x).shape[1]
    return (x, g.choice([n for n in range(1, 9) if channels % n == 0])), {}


def _batch_norm(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=g.choice((2, 3, 4)))
    sizes, dtype = (pool.of(x).shape[1],), pool.of(x).dtype
    return (x, Fresh(sizes, dtype), Fresh(sizes, dtype)), {}


def _pooled(dims: int, *, adaptive: bool = False) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick("f", dim=dims + 2)
        if adaptive:
            return (x, [g.randint(1, 4) for _ in range(dims)]), {}
        size = g.randint(1, 3)
        return (x, size, g.randint(1, 3), g.randint(0, size // 2)), {}

    return draw


def _attention(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=g.choice((3, 4)))
    sizes, dtype = tuple(pool.of(x).shape), pool.of(x).dtype
    keys = g.choice((1, 3, 17))
    causal = g.random() < 0.3
    mask = Fresh((sizes[-2], keys), torch.bool) if not causal and g.random() < 0.5 else None
    key, value = Fresh((*sizes[:-2], keys, sizes[-1]), dtype), Fresh((*sizes[:-2], keys, g.choice((1, 4, 8))), dtype)
    return (x, key, value, mask, 0.0, causal), {}


def _interpolated(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=4)
    mode = g.choice(("nearest", "bilinear", "bicubic", "area"))
    return (x, [g.randint(1, 6), g.randint(1, 6)]), {"mode": mode}


def _converted(*dtypes: torch.dtype, kind: str = "fib") -> Draw:
    return lambda g, pool: ((pool.pick(kind), g.choice(dtypes)), {})


def _clamped(g: random.Random, pool: Pool) -> Arguments:
    low, high = g.choice(((-1.0, 1.0), (None, 0.5), (0.0, None), (2.0, -2.0)))
    return (pool.pick("f"), low, high), {}


def _divided(g: random.Random, pool: Pool) -> Arguments:
    return (pool.pick("i"), g.choice((1, 2, 3, 7, -3, -1))), {}


@dataclass(frozen=True)
class Operator:
    """An entry: the callable, by its path under torch, and how to call it."""

    path: str
    errors: str
    draw: Draw

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        target: Any = torch
        for part in self.path.split("."):
            target = getattr(target, part)
        return target(*args, **kwargs)


def _all(prefix: str, names: str, errors: str, draw: Draw) -> list[Operator]:
    return [Operator(prefix + name, errors, draw) for name in names.split()]


_ELEMENTWISE = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh cosh tanh asinh"
    " acosh atanh sigmoid erf erfc erfinv lgamma digamma logit sinc deg2rad i0"
)
_ACTIVATIONS = (
    "gelu silu softplus elu selu celu mish relu6 hardswish hardsigmoid hardtanh leaky_relu logsigmoid tanhshrink"
    " softsign"
)
_F = "nn.functional."

OPERATORS = (
    *_all("", _ELEMENTWISE, ROUNDS, _unary()),
    # Not ndtr: torch decomposes it into 1 + erf, within the tolerance that docs/compatibility.md states, not eager's.
    *_all("special.", "entr log_ndtr erfcx i0e i1 bessel_j0", ROUNDS, _unary()),
    *_all(_F, _ACTIVATIONS, ROUNDS, _unary()),
    *_all("", "neg abs relu positive nan_to_num", MOVES, _unary("f")),
    *_all("", "neg abs square sign relu", MOVES, _unary("i")),
    *_all("", "isnan isinf isfinite isposinf signbit sign floor ceil round trunc frac sgn", DECIDES, _unary()),
    *_all("", "logical_not bitwise_not", MOVES, _unary("ib")),
    *_all("", "clamp", MOVES, _clamped),
    *_all("", "add sub mul div atan2 hypot logaddexp logaddexp2 xlogy pow", ROUNDS, _binary()),
    *_all("", "add sub mul", MOVES, _binary("i")),
    *_all("", "floor_divide remainder fmod", MOVES, _divided),
    *_all("", "maximum minimum fmax fmin", MOVES, _tensors("f", "f")),
    *_all("", "maximum minimum bitwise_xor bitwise_and bitwise_or", MOVES, _tensors("i", "i")),
    *_all("", "eq ne lt le gt ge", DECIDES, _tensors("fib", "fib")),
    *_all("", "copysign heaviside nextafter remainder fmod floor_divide", DECIDES, _tensors("f", "f")),
    *_all("", "logical_and logical_or logical_xor", DECIDES, _tensors("fib", "fib")),
    *_all("", "where", MOVES, _tensors("b", "fib", "fib")),
    *_all("", "masked_fill", MOVES, lambda g, pool: ((*_tensors("f", "b")(g, pool)[0], _number(g)), {})),
    *_all("", "lerp addcmul addcdiv", ROUNDS, _tensors("f", "f", "f")),
    *_all("", "sum mean logsumexp var std", ROUNDS, _reduced()),
    *_all("linalg.", "vector_norm", ROUNDS, lambda g, pool: ((pool.pick("f"), g.choice((1, 2, 3, float("inf")))), {})),
    *_all("", "sum", MOVES, _reduced("ib")),
    *_all("", "prod", ROUNDS, _reduced(several=False)),
    *_all("", "amax amin", MOVES, _reduced("fi")),
    *_all("", "max min median nanmedian", MOVES, lambda g, pool: ((pool.pick("fi"),), {})),
    *_all("", "cummax cummin", DECIDES, _along("fi")),
    # Of floating numbers, eager's answer hangs on how its sort takes NaN.
    *_all("", "mode", DECIDES, _along("i")),
    *_all("", "argmax argmin", DECIDES, _reduced("fi", several=False)),
    *_all("", "any all", DECIDES, _reduced("fib", several=False)),
    *_all("", "count_nonzero", DECIDES, _along("fib")),
    *_all("", "cumsum cumprod logcumsumexp", ROUNDS, _along()),
    *_all("", "cumsum", MOVES, _along("ib")),
    *_all("", "softmax log_softmax", ROUNDS, _along()),
    *_all(_F, "normalize softmin glu", ROUNDS, _along()),
    *_all("", "sort", DECIDES, _along("fi", descending=_flag, stable=True)),
    *_all("", "argsort", DECIDES, _along("fi", descending=_flag, stable=True)),
    *_all("Tensor.", "topk", DECIDES, _topk),
    *_all("", "reshape", MOVES, _reshape),
    *_all("", "permute", MOVES, _permute),
    *_all("", "narrow", MOVES, _narrow),
    *_all("ops.aten.", "slice.Tensor", MOVES, _sliced),
    *_all("", "stack cat", MOVES, _joined),
    *_all("Tensor.", "expand", MOVES, _expand),
    *_all("Tensor.", "repeat", MOVES, _repeat),
    *_all("Tensor.", "unfold", MOVES, _unfold),
    *_all(_F, "pad", MOVES, _padded),
    *_all("", "roll", MOVES, _rolled),
    *_all("", "flip", MOVES, _flipped),
    *_all("", "tril triu diagonal diag_embed", MOVES, _diagonal),
    *_all("", "squeeze", MOVES, _unary("fib")),
    *_all("", "unsqueeze", MOVES, _unary("fib", 0)),
    *_all("", "index_select", MOVES, _rows(0)),
    *_all("", "gather", MOVES, _gather),
    *_all("", "scatter_add index_add", ROUNDS, _scatter()),
    *_all("", "index_add", ROUNDS, _index_add),
    *_all("", "index_copy", MOVES, lambda g, pool: _once(_index_add(g, pool))),
    *_all("", "matmul", ROUNDS, _matrix(1)),
    *_all("", "bmm", ROUNDS, _matrix(3)),
    *_all(_F, "linear", ROUNDS, _linear),
    *_all(_F, "conv1d", ROUNDS, _conv(1)),
    *_all(_F, "conv2d", ROUNDS, _conv(2)),
    *_all(_F, "layer_norm rms_norm", ROUNDS, _layer_norm),
    *_all(_F, "group_norm", ROUNDS, _group_norm),
    *_all(_F, "batch_norm", ROUNDS, _batch_norm),
    *_all(_F, "avg_pool1d max_pool1d", ROUNDS, _pooled(1)),
    *_all(_F, "avg_pool2d max_pool2d", ROUNDS, _pooled(2)),
    *_all(_F, "adaptive_avg_pool2d adaptive_max_pool2d", ROUNDS, _pooled(2, adaptive=True)),
    *_all(_F, "scaled_dot_product_attention", ROUNDS, _attention),
    *_all(_F, "interpolate", ROUNDS, _interpolated),
    *_all("Tensor.", "to", ROUNDS, _converted(torch.float32, torch.float64, torch.bfloat16)),
    *_all("Tensor.", "to", DECIDES, _converted(torch.bool)),
    *_all("Tensor.", "to", MOVES, _converted(torch.int64, torch.float32, kind="b")),
)


def _once(arguments: Arguments) -> Arguments:
    """With one index: which of equal ones is written last is open."""
    (x, dim, index, source), _ = arguments
    sizes = [1 if d == dim else n for d, n in enumerate(source.shape)]
    return (x, dim, Fresh((1,), index.dtype, index.below, 0), Fresh(tuple(sizes), source.dtype)), {}
