"""How arguments of the operators of tests/fuzz/zoo.py are drawn.

`draw(generator, pool)` picks tensors of the pool by position (`Ref`), asks for fresh inputs
(`Fresh`) and draws sizes, dims and numbers. Calls that eager refuses are drawn again, so entries need not be careful.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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


def number(generator: random.Random) -> float:
    return generator.choice((0.5, -1.5, 2.0, 0.0, 1.0, -0.25, 3.0, generator.uniform(-4, 4)))


def _dim(generator: random.Random, x: torch.Tensor) -> int:
    if not x.dim():
        raise Unfit
    return generator.randrange(-x.dim(), x.dim())


def unary(kind: str = "f", *numbers: Any) -> Draw:
    return lambda g, pool: ((pool.pick(kind), *(n(g) if callable(n) else n for n in numbers)), {})


def binary(kind: str = "f") -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        first = pool.pick(kind)
        second: Any = number(g) if g.random() < 0.2 else pool.pick(kind, like=first)
        return (first, second), {}

    return draw


def tensors(kind: str, *more: str) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        first = pool.pick(kind)
        return (first, *(pool.pick(other, like=first) for other in more)), {}

    return draw


def reduced(kind: str = "f", *, several: bool = True) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick(kind)
        dims = pool.of(x).dim()
        if several and (not dims or g.random() < 0.3):
            return (x,), {}
        some = g.sample(range(dims), g.randint(1, dims)) if several else _dim(g, pool.of(x))
        return (x, some), {"keepdim": g.random() < 0.5}

    return draw


def along(kind: str = "f", **more: Any) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick(kind)
        return (x,), {"dim": _dim(g, pool.of(x)), **{k: v(g) if callable(v) else v for k, v in more.items()}}

    return draw


def flag(g: random.Random) -> bool:
    return g.random() < 0.5


def reshape(g: random.Random, pool: Pool) -> Arguments:
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


def permute(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dims = pool.of(x).dim()
    return (x, g.sample(range(dims), dims)), {}


def sliced(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    n = pool.of(x).shape[dim]
    return (x, dim, g.randint(-n - 1, n), g.randint(-n, n + 2), g.randint(1, 3)), {}


def narrow(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    n = pool.of(x).shape[dim]
    start = g.randint(0, n)
    return (x, dim, start, g.randint(0, n - start)), {}


def joined(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    same = [x] + [y for y in (pool.pick("fib", like=x) for _ in range(2)) if pool.of(y).shape == pool.of(x).shape]
    return (same, g.randrange(-pool.of(x).dim(), pool.of(x).dim() + 1)), {}


def expand(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    sizes = [g.choice((n, 3)) if n == 1 else n for n in pool.of(x).shape]
    return (x, [*[g.randint(1, 3)] * g.randint(0, 1), *sizes]), {}


def repeat(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    return (x, [g.choice((1, 2, 3, 0)) for _ in pool.of(x).shape]), {}


def unfold(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    return (x, dim, g.randint(1, max(1, pool.of(x).shape[dim])), g.randint(1, 3)), {}


def padded(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fi")
    dims = pool.of(x).dim()
    mode = g.choice(("constant", "constant", "reflect", "replicate", "circular"))
    count = g.randint(1, max(1, dims)) if mode == "constant" else max(1, dims - g.choice((1, 2)))
    least = -1 if mode == "constant" else 0
    return (x, [g.randint(least, 2) for _ in range(2 * count)], mode), {}


def rolled(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    return (x, g.randint(-5, 5), _dim(g, pool.of(x))), {}


def flipped(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fib")
    return (x, [_dim(g, pool.of(x))]), {}


def diagonal(g: random.Random, pool: Pool) -> Arguments:
    return (pool.pick("fib"), g.randint(-3, 3)), {}


def _filled_dim(g: random.Random, pool: Pool) -> tuple[Ref, int, int]:
    """A tensor, one of its dims, and the size of that, at least 1."""
    x = pool.pick("fib")
    dim = _dim(g, pool.of(x))
    n = pool.of(x).shape[dim]
    if not n:
        raise Unfit
    return x, dim, n


def rows(least: int) -> Draw:
    """x[indices] along a dim."""

    def draw(g: random.Random, pool: Pool) -> Arguments:
        x, dim, n = _filled_dim(g, pool)
        return (x, dim, Fresh((g.choice((0, 1, 4, 9)),), torch.int64, n, least and -n)), {}

    return draw


def gather(g: random.Random, pool: Pool) -> Arguments:
    x, dim, n = _filled_dim(g, pool)
    sizes = [g.randint(0 if m == 0 else 1, m) for m in pool.of(x).shape]
    return (x, dim, Fresh(tuple(sizes), torch.int64, n, 0)), {}


def scatter(kind: str = "fi") -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick(kind)
        dim = _dim(g, pool.of(x))
        n = pool.of(x).shape[dim]
        if not n:
            raise Unfit
        sizes = tuple(pool.of(x).shape)
        return (x, dim, Fresh(sizes, torch.int64, n, 0), Fresh(sizes, pool.of(x).dtype)), {}

    return draw


def index_add(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fi")
    dim = _dim(g, pool.of(x)) % pool.of(x).dim()
    sizes = list(pool.of(x).shape)
    n, sizes[dim] = sizes[dim], g.choice((1, 5))
    if not n:
        raise Unfit
    return (x, dim, Fresh((sizes[dim],), torch.int64, n, 0), Fresh(tuple(sizes), pool.of(x).dtype)), {}


def topk(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("fi")
    dim = _dim(g, pool.of(x))
    return (x, g.randint(0, pool.of(x).shape[dim]), dim, g.random() < 0.5), {}


def matrix(least: int) -> Draw:
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


def linear(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f")
    value = pool.of(x)
    if not value.dim():
        raise Unfit
    width = g.choice((1, 3, 8, 16, 33))
    bias = [Fresh((width,), value.dtype)] if g.random() < 0.5 else []
    return (x, Fresh((width, value.shape[-1]), value.dtype), *bias), {}


def conv(dims: int) -> Draw:
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


def layer_norm(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f")
    value = pool.of(x)
    count = g.randint(1, max(1, min(2, value.dim())))
    sizes = tuple(value.shape[-count:]) if value.dim() else ()
    scale = [Fresh(sizes, value.dtype)] if g.random() < 0.5 else []
    return (x, list(sizes), *scale), {}


def group_norm(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=g.choice((2, 3, 4)))
    channels = pool.of(x).shape[1]
    return (x, g.choice([n for n in range(1, 9) if channels % n == 0])), {}


def batch_norm(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=g.choice((2, 3, 4)))
    sizes, dtype = (pool.of(x).shape[1],), pool.of(x).dtype
    return (x, Fresh(sizes, dtype), Fresh(sizes, dtype)), {}


def pooled(dims: int, *, adaptive: bool = False) -> Draw:
    def draw(g: random.Random, pool: Pool) -> Arguments:
        x = pool.pick("f", dim=dims + 2)
        if adaptive:
            return (x, [g.randint(1, 4) for _ in range(dims)]), {}
        size = g.randint(1, 3)
        return (x, size, g.randint(1, 3), g.randint(0, size // 2)), {}

    return draw


def attention(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=g.choice((3, 4)))
    sizes, dtype = tuple(pool.of(x).shape), pool.of(x).dtype
    keys = g.choice((1, 3, 17))
    causal = g.random() < 0.3
    mask = Fresh((sizes[-2], keys), torch.bool) if not causal and g.random() < 0.5 else None
    key, value = Fresh((*sizes[:-2], keys, sizes[-1]), dtype), Fresh((*sizes[:-2], keys, g.choice((1, 4, 8))), dtype)
    return (x, key, value, mask, 0.0, causal), {}


def interpolated(g: random.Random, pool: Pool) -> Arguments:
    x = pool.pick("f", dim=4)
    mode = g.choice(("nearest", "bilinear", "bicubic", "area"))
    return (x, [g.randint(1, 6), g.randint(1, 6)]), {"mode": mode}


def converted(*dtypes: torch.dtype, kind: str = "fib") -> Draw:
    return lambda g, pool: ((pool.pick(kind), g.choice(dtypes)), {})


def clamped(g: random.Random, pool: Pool) -> Arguments:
    low, high = g.choice(((-1.0, 1.0), (None, 0.5), (0.0, None), (2.0, -2.0)))
    return (pool.pick("f"), low, high), {}


def divided(g: random.Random, pool: Pool) -> Arguments:
    return (pool.pick("i"), g.choice((1, 2, 3, 7, -3, -1))), {}


def once(arguments: Arguments) -> Arguments:
    """With one index: which of equal ones is written last is open."""
    (x, dim, index, source), _ = arguments
    sizes = [1 if d == dim else n for d, n in enumerate(source.shape)]
    return (x, dim, Fresh((1,), index.dtype, index.below, 0), Fresh(tuple(sizes), source.dtype)), {}
