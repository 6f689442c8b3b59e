"""Special functions that GPUs compute on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops.registry import define

# In the order of their numbers (csrc/module/ops/special.cpp).
NAMES = (
    "airy_ai",
    "digamma",
    "igamma",
    "igammac",
    "i0e",
    "i1e",
    "log_ndtr",
    "ndtri",
    "polygamma",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
    "zeta",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
)
# Of two variables; the others read one.
BINARY = frozenset(["igamma", "igammac", "zeta", *(name for name in NAMES if "_polynomial_" in name)])


def _function(a: Tensor, b: Tensor, function: int) -> Tensor:
    name = NAMES[function]
    if name == "polygamma":
        orders = b.unique().tolist()
        results = [torch.where(b == order, torch.polygamma(int(order), a), 0) for order in orders]
        return sum(results, torch.zeros_like(a)).contiguous()
    reference = getattr(torch.special, name, None) or getattr(torch, name)
    result: Tensor = reference(a, b) if name in BINARY else reference(a)
    return result.contiguous()


def _fake(a: Tensor, b: Tensor, function: int) -> Tensor:
    return a.new_empty(a.shape)


# a, b: float32 or float64 of one shape; b is the second variable, or the order of polygamma.
special_function = define("special_function(Tensor a, Tensor b, int function) -> Tensor", _function, _fake)
