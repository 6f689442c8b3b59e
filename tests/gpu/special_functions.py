"""Special functions without code in Triton, which GPUs compute on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Case = tuple[Any, tuple[Any, ...], Any]


def _of_one(x: Tensor) -> tuple[Tensor, ...]:
    special = torch.special
    functions = (special.digamma, special.i0e, special.i1e, special.log_ndtr, special.ndtri, special.airy_ai)
    bessel = (
        special.modified_bessel_k0,
        special.modified_bessel_k1,
        special.scaled_modified_bessel_k0,
        special.scaled_modified_bessel_k1,
        special.spherical_bessel_j0,
    )
    orders = tuple(special.polygamma(n, x) for n in range(4))
    return (*(function(x) for function in (*functions, *bessel)), *orders)


def _of_two(x: Tensor, y: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    special = torch.special
    polynomials = (special.chebyshev_polynomial_t, special.hermite_polynomial_he, special.laguerre_polynomial_l)
    return (
        *(polynomial(x, n) for polynomial in polynomials),
        special.legendre_polynomial_p(x, 3),
        special.shifted_chebyshev_polynomial_w(0.25, n),
        special.gammainc(y, x.abs()),
        special.gammaincc(y, x.abs()),
        special.zeta(y + 1, y),
        special.digamma(n),
    )


def special_functions() -> dict[str, Callable[[], Case]]:
    """Name → model, example arguments and dynamic shapes."""
    edges = torch.tensor([0.0, -1.0, 0.5, 1e-30, float("inf"), float("nan"), -0.25])
    return {
        "host-special-unary": lambda: (_of_one, (torch.cat([edges, torch.rand(50)]),), None),
        "host-special-double": lambda: (_of_one, (torch.rand(6, 5, dtype=torch.float64).mT,), None),
        "host-special-half": lambda: (torch.special.digamma, (torch.rand(9).bfloat16(),), None),
        # Integers, numbers, and operands that broadcast.
        "host-special-binary": lambda: (
            _of_two, (torch.rand(4, 1) * 2 - 1, torch.rand(5) + 0.5, torch.arange(1, 6)), None
        ),
    }  # fmt: skip
