"""Random numbers as functions of a seed: the same seed gives the same numbers, so nothing here is random to a graph.

`seed` is one int64. The references draw from torch's generator seeded with it: other numbers of the same distributions
than those of an archive.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aotpack.export.ops.registry import define
from aotpack.export.torch_compat.functions import sample_dirichlet, standard_gamma


def _generator(seed: Tensor) -> torch.Generator:
    return torch.Generator().manual_seed(int(seed.item()))


def _integers(low: int, last: int, size: Sequence[int], seed: Tensor) -> Tensor:
    if last == torch.iinfo(torch.int64).max:
        return torch.empty(size, dtype=torch.int64).random_(low, None, generator=_generator(seed))
    return torch.randint(low, last + 1, size, generator=_generator(seed))


random_integers = define(
    "random_integers(SymInt low, SymInt last, SymInt[] size, Tensor seed) -> Tensor",
    _integers,
    lambda low, last, size, seed: seed.new_empty(size, dtype=torch.int64),
)


def last_integer(dtype: torch.dtype) -> int:
    """The end, inclusive, of what `Tensor.random_` draws where nothing is said of it."""
    if dtype == torch.bool:
        return 1
    # Of floats: as far as they have every integer.
    return int(2 / torch.finfo(dtype).eps) if dtype.is_floating_point else torch.iinfo(dtype).max


def _between(x: Tensor, low: int, last: int) -> Tensor:
    return torch.empty_like(x).random_(low, None if last == torch.iinfo(torch.int64).max else last + 1)


# `Tensor.random_(from, to)`, whose operator torch writes into a graph as invalid Python (`from`).
random_between = define(
    "random_between(Tensor x, SymInt low, SymInt last) -> Tensor",
    _between,
    lambda x, low, last: torch.empty_like(x),
    tags=(torch.Tag.nondeterministic_seeded,),
)


def _permutation(n: int, seed: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.randperm(n, generator=_generator(seed), dtype=dtype)


random_permutation = define(
    "random_permutation(SymInt n, Tensor seed, ScalarType dtype) -> Tensor",
    _permutation,
    lambda n, seed, dtype: seed.new_empty((n,), dtype=dtype),
)


def _row_major(x: Tensor, *rest: Tensor) -> Tensor:
    return x.new_empty(x.shape)


random_poisson = define(
    "random_poisson(Tensor rate, Tensor seed) -> Tensor",
    lambda rate, seed: torch.poisson(rate, generator=_generator(seed)),
    _row_major,
)
random_binomial = define(
    "random_binomial(Tensor count, Tensor prob, Tensor seed) -> Tensor",
    lambda count, prob, seed: torch.binomial(count, prob, generator=_generator(seed)),
    _row_major,
)
random_gamma = define(
    "random_gamma(Tensor alpha, Tensor seed) -> Tensor",
    lambda alpha, seed: standard_gamma(alpha, generator=_generator(seed)),
    _row_major,
)
random_dirichlet = define(
    "random_dirichlet(Tensor alpha, Tensor seed) -> Tensor",
    lambda alpha, seed: sample_dirichlet(alpha, generator=_generator(seed)),
    _row_major,
)


def _multinomial(weights: Tensor, samples: int, replacement: bool, seed: Tensor) -> Tensor:
    return torch.multinomial(weights, samples, replacement, generator=_generator(seed))


random_multinomial = define(
    "random_multinomial(Tensor weights, SymInt samples, bool replacement, Tensor seed) -> Tensor",
    _multinomial,
    lambda weights, samples, replacement, seed: weights.new_empty((*weights.shape[:-1], samples), dtype=torch.int64),
)
