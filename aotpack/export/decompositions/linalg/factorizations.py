"""Linear algebra: aten's operators by those of aotpack/export/ops/linalg.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops import linalg


def _checked(info: Tensor, name: str, like: Tensor) -> None:
    linalg.check_errors(info, name, like.dim() == 2)


@decomposes(aten._linalg_check_errors.default)
def _check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    linalg.check_errors(info, api_name, is_matrix)


# ---- LU -------------------------------------------------------------------------------------------------------------


@decomposes(aten.linalg_lu_factor_ex.default)
def _lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, info = linalg.lu_factor(a)
    if check_errors:
        _checked(info, "torch.linalg.lu_factor_ex", a)
    return lu, pivots, info


@decomposes(aten.linalg_lu.default)
def _lu(a: Tensor, *, pivot: bool = True) -> Any:
    lu, pivots, _ = linalg.lu_factor(a)
    return aten.lu_unpack.default(lu, pivots)


@decomposes(aten._linalg_det.default)
def _det(a: Tensor) -> Any:
    return linalg.det(a.mT if linalg.factors_transpose(aten._linalg_det.default, a) else a)


@decomposes(aten._linalg_slogdet.default)
def _slogdet(a: Tensor) -> Any:
    return linalg.slogdet(a.mT if linalg.factors_transpose(aten._linalg_slogdet.default, a) else a)


@decomposes(aten.linalg_inv_ex.default)
def _inv_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    inverse, info = linalg.inv(a)
    if check_errors:
        _checked(info, "linalg.inv_ex", a)
    return inverse, info


@decomposes(aten._linalg_solve_ex.default)
def _solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    vectors = linalg.solves_vectors(a, b)
    sides = b.unsqueeze(-1) if vectors else b
    transposed = linalg.factors_transpose(aten._linalg_solve_ex.default, a)
    result, lu, pivots, info = linalg.solve(a, sides, vectors or left, transposed)
    if vectors:
        # aten gives vectors strides as if they were columns of one matrix.
        result = result.squeeze(-1)
        if left and result.dim() > 1:
            result = result.mT.contiguous().mT
    if check_errors:
        _checked(info, "torch.linalg.solve_ex", a)
    return result, lu, pivots, info


@decomposes(aten.linalg_lu_solve.default)
def _lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    return linalg.lu_solve(lu, pivots, b, left, adjoint)


# ---- symmetric and triangular matrices ------------------------------------------------------------------------------


@decomposes(aten.linalg_cholesky_ex.default)
def _cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor, info = linalg.cholesky(a, upper)
    if check_errors:
        _checked(info, "linalg.cholesky_ex", a)
    return factor, info


@decomposes(aten.cholesky.default)
def _cholesky(a: Tensor, upper: bool = False) -> Any:
    factor, info = linalg.cholesky(a, upper)
    _checked(info, "cholesky", a)
    return factor


@decomposes(aten.linalg_ldl_factor_ex.default)
def _ldl_factor_ex(a: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    ld, pivots, info = linalg.ldl_factor(a, hermitian)
    if check_errors:
        _checked(info, "torch.linalg.ldl_factor_ex", a)
    return ld, pivots, info


@decomposes(aten.linalg_ldl_solve.default)
def _ldl_solve(ld: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Any:
    return linalg.ldl_solve(ld, pivots, b, hermitian)


@decomposes(aten.linalg_solve_triangular.default)
def _solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    return linalg.solve_triangular(a, b, upper, left, unitriangular)


# ---- orthogonal factors, eigenvalues, singular values ---------------------------------------------------------------


@decomposes(aten.linalg_qr.default)
def _qr(a: Tensor, mode: str = "reduced") -> Any:
    return linalg.qr(a, mode)


@decomposes(aten.linalg_householder_product.default)
def _householder_product(a: Tensor, tau: Tensor) -> Any:
    return linalg.householder_product(a, tau)


@decomposes(aten._linalg_eigh.default)
def _eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    return linalg.eigh(a, uplo, compute_v)


@decomposes(aten._linalg_svd.default)
def _svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    return linalg.svd(a, full_matrices, compute_uv)


@decomposes(aten.linalg_eig.default)
def _eig(a: Tensor) -> Any:
    return linalg.eig(a)


@decomposes(aten.linalg_eigvals.default, aten._linalg_eigvals.default)
def _eigvals(a: Tensor) -> Any:
    return linalg.eigvals(a)


@decomposes(aten.linalg_matrix_exp.default)
def _matrix_exp(a: Tensor) -> Any:
    # Halves in single precision: eager has them, LAPACK's kind of kernels do not.
    if a.dtype in (torch.bfloat16, torch.float16):
        return linalg.matrix_exp(a.float()).to(a.dtype)
    return linalg.matrix_exp(a)


@decomposes(aten.linalg_pinv.atol_rtol_tensor)
def _pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Any:
    *batch, m, n = a.shape
    if 0 in (m, n):
        return a.new_empty((*batch, n, m))
    # As eager has it: relative to the greatest singular value, unless an absolute tolerance above 0 is given alone.
    absolute = torch.zeros((), dtype=torch.float64, device=a.device) if atol is None else atol
    relative = rtol
    if relative is None:
        rounding = torch.finfo(a.dtype).eps * torch.sym_max(m, n)
        relative = torch.full((), rounding, dtype=torch.float64, device=a.device)
        if atol is not None:
            relative = torch.where(atol > 0, torch.zeros_like(relative), relative)
    if hermitian:
        values, vectors = linalg.eigh(a, "L", True)
        sizes = values.abs()
        left, right = vectors, vectors.mH
    else:
        u, values, vh = linalg.svd(a, False, True)
        sizes = values
        left, right = vh.mH, u.mH
    greatest = sizes.amax(-1, keepdim=True)
    least = torch.maximum(absolute.unsqueeze(-1), relative.unsqueeze(-1) * greatest)
    inverse = torch.where(sizes > least, values.reciprocal(), torch.zeros_like(values))
    return (left * inverse.unsqueeze(-2).to(a.dtype)) @ right
