"""Draws of random numbers: their distributions are tested elsewhere, here their sizes and that they stay in bounds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import around, positive

_CPU = "aoti_torch_cpu_"


def cases() -> Iterator[Case]:
    seed = torch.tensor(12345)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for sizes in around(3, 5):
            rate = positive(*sizes, dtype=dtype)
            for name in ("poisson", "gamma", "dirichlet"):
                yield _case(name, rate, seed)
            yield _case("binomial", (rate * 5).floor(), rate / 2, seed)
            for spread in (0.3, 3.0, 40.0):
                alpha, sample = rate * spread, positive(*sizes, dtype=dtype) * spread
                yield Case(f"{_CPU}standard_gamma_grad", _gamma_gradient, (alpha, sample))
                share = (torch.rand(sizes, dtype=torch.float64) * 0.98 + 0.01).to(dtype)
                yield Case(f"{_CPU}dirichlet_grad", _dirichlet_gradient, (share, alpha, alpha + sample))
            if sizes[-1] > 1 and sizes[0]:
                yield _case("multinomial", rate, 2, False, seed)
                yield _case("multinomial", rate, 9, True, seed)
    for count in (0, 1, 17):
        yield _case("permutation", count, seed, torch.int64)
        yield _case("permutation", count, seed, torch.int32)
        yield _case("integers", -3, 12, [count, 2], seed)
    out = torch.empty(4, 2, dtype=torch.int64)
    yield Case(f"{_CPU}randint_low_out", lambda low, high, size: out, (3, 9, [4, 2]), compare=False)


def _case(name: str, *args: object) -> Case:
    fixed = tuple(range(len(args)))
    return Case(f"{_CPU}random_{name}", getattr(torch.ops.aotpack, f"random_{name}"), args, fixed, compare=False)


def _gamma_gradient(alpha: Tensor, sample: Tensor) -> Tensor:
    return torch._standard_gamma_grad(alpha.double(), sample.double()).to(alpha.dtype)


def _dirichlet_gradient(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    return torch._dirichlet_grad(x.double(), alpha.double(), total.double()).to(alpha.dtype)
