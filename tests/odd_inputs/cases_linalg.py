"""Linear algebra. Results that are not unique are compared by properties elsewhere; here their sizes are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import around, values

aten, ours = torch.ops.aten, torch.ops.aotpack
_CPU = "aoti_torch_cpu_"
_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def cases() -> Iterator[Case]:
    for dtype in _DTYPES:
        for batch, n, k in around(2, 5, 3):
            yield from _square(_regular(batch, n, dtype=dtype), values(batch, n, k, dtype=dtype))
            yield from _rectangular(values(batch, n, k, dtype=dtype))
    yield Case(f"{_CPU}linalg_check_errors", ours.linalg_check_errors, (torch.zeros(3, dtype=torch.int32), "inv", True))
    wrong = torch.tensor([0, 2, 0], dtype=torch.int32)
    yield Case(f"{_CPU}linalg_check_errors", ours.linalg_check_errors, (wrong, "linalg.inv", True), (0,), refused=True)


def _regular(*sizes: int, dtype: torch.dtype) -> Tensor:
    """Matrices [*batch, n, n] of small condition."""
    n = sizes[-1]
    return values(*sizes, n, dtype=dtype) * 0.3 + 2 * torch.eye(n, dtype=dtype)


def _square(a: Tensor, b: Tensor) -> Iterator[Case]:
    def case(name: str, operator: Any, *args: Any, compare: bool = True) -> Case:
        # Repeated rows would make a matrix singular.
        return Case(_CPU + name, operator, args, fixed=tuple(range(len(args))), compare=compare, tolerance=_loose(a))

    yield case("linalg_lu_factor", ours.linalg_lu_factor, a)
    yield case("linalg_det", ours.linalg_det, a)
    yield case("linalg_slogdet", ours.linalg_slogdet, a)
    yield case("linalg_inv", ours.linalg_inv, a)
    for transpose in (False, True) if not a.is_complex() else (False,):
        yield case("linalg_solve", ours.linalg_solve, a, b, True, transpose)
        yield case("linalg_solve", ours.linalg_solve, a, b.mT, False, transpose)
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    yield case("linalg_lu_solve", ours.linalg_lu_solve, lu, pivots, b, True, False)
    yield case("linalg_lu_solve", ours.linalg_lu_solve, lu, pivots, b.mT, False, True)
    yield case("lu_unpack", aten.lu_unpack, lu, pivots, True, True)
    positive = a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype)
    for upper in (False, True):
        yield case("linalg_cholesky", ours.linalg_cholesky, positive, upper)
        factor = torch.linalg.cholesky(positive, upper=upper)
        yield case("cholesky_solve", aten.cholesky_solve, b, factor, upper)
        yield case("cholesky_inverse", aten.cholesky_inverse, factor, upper)
        triangle = a.triu() if upper else a.tril()
        yield case("linalg_solve_triangular", ours.linalg_solve_triangular, triangle, b, upper, True, False)
        yield case("triangular_solve", aten.triangular_solve, b, triangle, upper, True, False)
    yield case("linalg_ldl_factor", ours.linalg_ldl_factor, positive, a.is_complex())
    ld, order, _ = torch.linalg.ldl_factor_ex(positive, hermitian=a.is_complex())
    yield case("linalg_ldl_solve", ours.linalg_ldl_solve, ld, order, b, a.is_complex())
    for compute in (True, False):
        yield case("linalg_eigh", ours.linalg_eigh, positive, "L", compute, compare=False)
    yield case("linalg_eig", ours.linalg_eig, a, compare=False)
    yield case("linalg_eigvals", ours.linalg_eigvals, a, compare=False)
    yield case("linalg_matrix_exp", ours.linalg_matrix_exp, a)


def _rectangular(a: Tensor) -> Iterator[Case]:
    def case(name: str, operator: Any, *args: Any, compare: bool = True) -> Case:
        return Case(_CPU + name, operator, args, fixed=tuple(range(len(args))), compare=compare, tolerance=_loose(a))

    for mode in ("reduced", "complete", "r"):
        yield case("linalg_qr", ours.linalg_qr, a, mode)
    yield case("geqrf", aten.geqrf, a)
    for full in (False, True):
        yield case("linalg_svd", ours.linalg_svd, a, full, True, compare=False)
    if a.shape[-2] >= a.shape[-1]:
        packed, tau = torch.geqrf(a)
        yield case("linalg_householder_product", ours.linalg_householder_product, packed, tau)
        if 0 not in a.shape:
            other = values(*a.shape[:-1], 4, dtype=a.dtype)
            for transpose in (False, True):
                yield case("ormqr", aten.ormqr, packed, tau, other, True, transpose)


def _loose(a: Tensor) -> float:
    return 1e-3 if a.dtype in (torch.float32, torch.complex64) else 1e-8
