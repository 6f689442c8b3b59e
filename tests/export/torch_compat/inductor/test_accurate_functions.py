"""Elementwise functions are accurate to the last places of their results, however small those are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotpack.export import aot_export
from tests.export.torch_compat.inductor.test_inductor_adapter import generated
from tests.support.building import Build

pytestmark = pytest.mark.torch

# Those of which f(x) is about x, or x², near 0: what computes them as a difference loses all digits there.
_NEAR_ZERO = ["erf", "expm1", "log1p", "tan", "atan", "asin", "sinh", "tanh", "asinh", "atanh", "special.i1"]
_NEAR_ZERO += ["nn.functional.elu", "nn.functional.silu"]
# In the last place: some are products of several such functions.
_UNITS = 12


def _function(name: str) -> object:
    found: object = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Functions(torch.nn.Module):
    def forward(self, x: Tensor, half: Tensor, double: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        every = [_function(name)(x) for name in _NEAR_ZERO]  # type: ignore[operator]
        # In bfloat16, in float64, and in vectors of two registers, beside float64.
        return every, [torch.erf(half), torch.erf(double), torch.erf(x).double() * double]


def test_functions_are_accurate_near_zero(build: Build) -> None:
    torch.manual_seed(0)
    # Below 1 and of every size, on both sides of formulas' limits; no subnormals; a tail that fills no vector.
    x = torch.randn(1003, dtype=torch.float64) * 10.0 ** torch.empty(1003, dtype=torch.float64).uniform_(-30, -0.5)
    x[:6] = torch.tensor([0.0, -0.0, 0.5, -0.49999997, torch.nan, 5e-8])
    given = x.float(), x.bfloat16(), x
    archive = build(Functions(), given)
    functions, erfs = archive(*given)
    single = given[0].double()
    for name, actual in zip(_NEAR_ZERO, functions, strict=True):
        _check(name, actual, _function(name)(single))  # type: ignore[operator]
    expected = torch.erf(given[1].double()), torch.erf(x), torch.erf(single) * x
    for name, actual, precise in zip(("bfloat16", "float64", "both"), erfs, expected, strict=True):
        _check(name, actual, precise, eps=torch.finfo(torch.float32).eps if name == "both" else None)


def _check(name: str, actual: Tensor, precise: Tensor, eps: float | None = None) -> None:
    eps = torch.finfo(actual.dtype).eps if eps is None else eps
    assert torch.equal(actual.isnan(), precise.isnan()), name
    precise = precise.nan_to_num(0.0)
    error = (actual.nan_to_num(0.0).double() - precise).abs() / precise.abs().clamp_min(1e-37)
    worst = int(error.argmax())
    assert error[worst] <= _UNITS * eps, f"{name}: {actual[worst].item()!r} instead of {precise[worst].item()!r}"


def test_vectorised_code_calls_the_accurate_functions() -> None:
    """A canary for CppVecOverrides.{atanh, erf, expm1}."""

    def functions(x: Tensor) -> Tensor:
        return torch.erf(x) + torch.expm1(x) + torch.atanh(x)

    kernels = "".join(generated(aot_export(functions, (torch.randn(64),))).kernels)
    assert all(call in kernels for call in ("aotpack_erf(", ".expm1()", ".atanh()"))
    assert not any(call in kernels for call in (".erf()", ".exp()", ".log()"))
