"""The operators that random programs are made of.

What an operator does to rounding errors decides where it may stand:

- `ROUNDS`: continuous, its result may differ in the last places;
- `MOVES`: rearranges, selects or negates elements: exact where its arguments are;
- `DECIDES`: not continuous (floor, comparisons, argmax): an error in the last place becomes a whole one, so arguments
  must be exact, and then the result is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz import draws

ROUNDS, MOVES, DECIDES = "rounds", "moves", "decides"


@dataclass(frozen=True)
class Operator:
    """An entry: the callable, by its path under torch, and how to call it."""

    path: str
    errors: str
    draw: draws.Draw

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        target: Any = torch
        for part in self.path.split("."):
            target = getattr(target, part)
        return target(*args, **kwargs)


def _all(prefix: str, names: str, errors: str, draw: draws.Draw) -> list[Operator]:
    return [Operator(prefix + name, errors, draw) for name in names.split()]


_ELEMENTWISE = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh cosh tanh asinh"
    " acosh atanh sigmoid erf erfc erfinv lgamma digamma logit sinc deg2rad i0"
)
# Not tanhshrink: x - tanh(x) cancels, so that a unit in the last place of x, not of the result, is its accuracy.
_ACTIVATIONS = (
    "gelu silu softplus elu selu celu mish relu6 hardswish hardsigmoid hardtanh leaky_relu logsigmoid softsign"
)
_F = "nn.functional."

OPERATORS = (
    *_all("", _ELEMENTWISE, ROUNDS, draws.unary()),
    # Not ndtr: torch decomposes it into 1 + erf, within the tolerance that docs/compatibility.md states, not eager's.
    *_all("special.", "entr log_ndtr erfcx i0e i1 bessel_j0", ROUNDS, draws.unary()),
    *_all(_F, _ACTIVATIONS, ROUNDS, draws.unary()),
    *_all("", "neg abs relu positive nan_to_num", MOVES, draws.unary("f")),
    *_all("", "neg abs square sign relu", MOVES, draws.unary("i")),
    *_all("", "isnan isinf isfinite isposinf signbit sign floor ceil round trunc frac sgn", DECIDES, draws.unary()),
    *_all("", "logical_not bitwise_not", MOVES, draws.unary("ib")),
    *_all("", "clamp", MOVES, draws.clamped),
    *_all("", "add sub mul div atan2 hypot logaddexp logaddexp2 xlogy pow", ROUNDS, draws.binary()),
    *_all("", "add sub mul", MOVES, draws.binary("i")),
    *_all("", "floor_divide remainder fmod", MOVES, draws.divided),
    *_all("", "maximum minimum fmax fmin", MOVES, draws.tensors("f", "f")),
    *_all("", "maximum minimum bitwise_xor bitwise_and bitwise_or", MOVES, draws.tensors("i", "i")),
    *_all("", "eq ne lt le gt ge", DECIDES, draws.tensors("fib", "fib")),
    *_all("", "copysign heaviside nextafter remainder fmod floor_divide", DECIDES, draws.tensors("f", "f")),
    *_all("", "logical_and logical_or logical_xor", DECIDES, draws.tensors("fib", "fib")),
    *_all("", "where", MOVES, draws.tensors("b", "fib", "fib")),
    *_all("", "masked_fill", MOVES, lambda g, pool: ((*draws.tensors("f", "b")(g, pool)[0], draws.number(g)), {})),
    *_all("", "lerp addcmul addcdiv", ROUNDS, draws.tensors("f", "f", "f")),
    *_all("", "sum mean logsumexp var std", ROUNDS, draws.reduced()),
    *_all("linalg.", "vector_norm", ROUNDS, lambda g, pool: ((pool.pick("f"), g.choice((1, 2, 3, float("inf")))), {})),
    *_all("", "sum", MOVES, draws.reduced("ib")),
    *_all("", "prod", ROUNDS, draws.reduced(several=False)),
    *_all("", "amax amin", MOVES, draws.reduced("fi")),
    *_all("", "max min median nanmedian", MOVES, lambda g, pool: ((pool.pick("fi"),), {})),
    *_all("", "cummax cummin", DECIDES, draws.along("fi")),
    # Of floating numbers, eager's answer hangs on how its sort takes NaN.
    *_all("", "mode", DECIDES, draws.along("i")),
    *_all("", "argmax argmin", DECIDES, draws.reduced("fi", several=False)),
    *_all("", "any all", DECIDES, draws.reduced("fib", several=False)),
    *_all("", "count_nonzero", DECIDES, draws.along("fib")),
    *_all("", "cumsum cumprod logcumsumexp", ROUNDS, draws.along()),
    *_all("", "cumsum", MOVES, draws.along("ib")),
    *_all("", "softmax log_softmax", ROUNDS, draws.along()),
    *_all(_F, "normalize softmin glu", ROUNDS, draws.along()),
    *_all("", "sort", DECIDES, draws.along("fi", descending=draws.flag, stable=True)),
    *_all("", "argsort", DECIDES, draws.along("fi", descending=draws.flag, stable=True)),
    *_all("Tensor.", "topk", DECIDES, draws.topk),
    *_all("", "reshape", MOVES, draws.reshape),
    *_all("", "permute", MOVES, draws.permute),
    *_all("", "narrow", MOVES, draws.narrow),
    *_all("ops.aten.", "slice.Tensor", MOVES, draws.sliced),
    *_all("", "stack cat", MOVES, draws.joined),
    *_all("Tensor.", "expand", MOVES, draws.expand),
    *_all("Tensor.", "repeat", MOVES, draws.repeat),
    *_all("Tensor.", "unfold", MOVES, draws.unfold),
    *_all(_F, "pad", MOVES, draws.padded),
    *_all("", "roll", MOVES, draws.rolled),
    *_all("", "flip", MOVES, draws.flipped),
    *_all("", "tril triu diagonal diag_embed", MOVES, draws.diagonal),
    *_all("", "squeeze", MOVES, draws.unary("fib")),
    *_all("", "unsqueeze", MOVES, draws.unary("fib", 0)),
    *_all("", "index_select", MOVES, draws.rows(0)),
    *_all("", "gather", MOVES, draws.gather),
    *_all("", "scatter_add index_add", ROUNDS, draws.scatter()),
    *_all("", "index_add", ROUNDS, draws.index_add),
    *_all("", "index_copy", MOVES, lambda g, pool: draws.once(draws.index_add(g, pool))),
    *_all("", "matmul", ROUNDS, draws.matrix(1)),
    *_all("", "bmm", ROUNDS, draws.matrix(3)),
    *_all(_F, "linear", ROUNDS, draws.linear),
    *_all(_F, "conv1d", ROUNDS, draws.conv(1)),
    *_all(_F, "conv2d", ROUNDS, draws.conv(2)),
    *_all(_F, "layer_norm rms_norm", ROUNDS, draws.layer_norm),
    *_all(_F, "group_norm", ROUNDS, draws.group_norm),
    *_all(_F, "batch_norm", ROUNDS, draws.batch_norm),
    *_all(_F, "avg_pool1d max_pool1d", ROUNDS, draws.pooled(1)),
    *_all(_F, "avg_pool2d max_pool2d", ROUNDS, draws.pooled(2)),
    *_all(_F, "adaptive_avg_pool2d adaptive_max_pool2d", ROUNDS, draws.pooled(2, adaptive=True)),
    *_all(_F, "scaled_dot_product_attention", ROUNDS, draws.attention),
    *_all(_F, "interpolate", ROUNDS, draws.interpolated),
    *_all("Tensor.", "to", ROUNDS, draws.converted(torch.float32, torch.float64, torch.bfloat16)),
    *_all("Tensor.", "to", DECIDES, draws.converted(torch.bool)),
    *_all("Tensor.", "to", MOVES, draws.converted(torch.int64, torch.float32, kind="b")),
)
