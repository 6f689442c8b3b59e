"""Linear algebra: operators of aten that torch calls LAPACK for and TorchInductor would call by the dispatcher.

Results lie as aten's do: matrices column-major, one after the other, but for solutions of X A = B. References are
aten's own operators; kernels are in csrc/kernels/linalg/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ir.rewriter import is_contiguous
from aotpack.export.ops.registry import define
from aotpack.export.torch_compat.operators import OpOverload

aten = torch.ops.aten


def empty_matrices(like: Tensor, batch: Sequence[Any], rows: Any, cols: Any, *, row_major: bool = False) -> Tensor:
    """Room for [*batch, rows, cols], in LAPACK's layout unless `row_major`."""
    if row_major:
        return like.new_empty((*batch, rows, cols))
    return like.new_empty((*batch, cols, rows)).mT


def _vectors(like: Tensor, *sizes: Any, dtype: torch.dtype | None = None) -> Tensor:
    return like.new_empty(sizes, dtype=dtype or like.dtype)


def _info(like: Tensor) -> Tensor:
    return like.new_empty(like.shape[:-2], dtype=torch.int32)


def _pivots(like: Tensor) -> Tensor:
    return like.new_empty((*like.shape[:-2], _least(like)), dtype=torch.int32)


def _least(like: Tensor) -> Any:
    return torch.sym_min(like.shape[-2], like.shape[-1])


def _same(like: Tensor) -> Tensor:
    return empty_matrices(like, like.shape[:-2], like.shape[-2], like.shape[-1])


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real()


def _broadcast(*batches: Sequence[Any]) -> Sequence[Any]:
    batch: Sequence[Any] = torch.broadcast_shapes(*batches)
    return batch


_SAMPLE = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
# Some versions of torch factor contiguous real matrices transposed, to save a copy, and their backwards use the factors
# accordingly. The first pivot of the sample is 3, that of its transpose 2.
_TRANSPOSING = frozenset(
    op
    for op, lu in (
        (aten._linalg_det.default, aten._linalg_det.default(_SAMPLE)[1]),
        (aten._linalg_slogdet.default, aten._linalg_slogdet.default(_SAMPLE)[2]),
        (aten._linalg_solve_ex.default, aten._linalg_solve_ex.default(_SAMPLE, _SAMPLE)[1]),
    )
    if lu[0, 0].item() != 3.0
)


def factors_transpose(op: OpOverload, a: Tensor) -> bool:
    """Whether this operator of aten, called on `a`, returns the LU factors of `a` transposed."""
    return op in _TRANSPOSING and is_contiguous(a) and not a.dtype.is_complex


def solves_vectors(a: Tensor, b: Tensor) -> bool:
    """Whether A X = B has vectors for B, as torch.linalg.solve decides it."""
    return b.dim() == 1 or (a.dim() - 1 == b.dim() and tuple(b.shape) == tuple(a.shape[:-1]))


# ---- LU -------------------------------------------------------------------------------------------------------------

lu_factor = define(
    "linalg_lu_factor(Tensor A) -> (Tensor LU, Tensor pivots, Tensor info)",
    lambda a: aten.linalg_lu_factor_ex.default(a),
    lambda a: (_same(a), _pivots(a), _info(a)),
)

det = define(
    "linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)",
    lambda a: (torch.det(a), *torch.linalg.lu_factor_ex(a)[:2]),
    lambda a: (_vectors(a, *a.shape[:-2]), _same(a), _pivots(a)),
)

slogdet = define(
    "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)",
    lambda a: (*torch.slogdet(a), *torch.linalg.lu_factor_ex(a)[:2]),
    lambda a: (
        _vectors(a, *a.shape[:-2]),
        _vectors(a, *a.shape[:-2], dtype=_real(a.dtype)),
        _same(a),
        _pivots(a),
    ),
)

inv = define(
    "linalg_inv(Tensor A) -> (Tensor inverse, Tensor info)",
    lambda a: aten.linalg_inv_ex.default(a),
    lambda a: (_same(a), _info(a)),
)


def _solution(a: Tensor, b: Tensor, left: bool) -> Tensor:
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    return empty_matrices(b, batch, b.shape[-2], b.shape[-1], row_major=not left)


def _solve(a: Tensor, b: Tensor, left: bool, of_transpose: bool) -> tuple[Tensor, ...]:
    factored = torch.linalg.lu_factor_ex(a.mT if of_transpose else a)
    result = aten.linalg_lu_solve.default(factored[0], factored[1], b, left=left, adjoint=of_transpose)
    return result, *factored


# B has the matrices' rank. The factors are those of A transposed, for real tensors, if `of_transpose`.
solve = define(
    "linalg_solve(Tensor A, Tensor B, bool left, bool of_transpose) -> "
    "(Tensor result, Tensor LU, Tensor pivots, Tensor info)",
    _solve,
    lambda a, b, left, of_transpose: (_solution(a, b, left), _same(a), _pivots(a), _info(a)),
)

lu_solve = define(
    "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, bool left, bool adjoint) -> Tensor",
    lambda lu, pivots, b, left, adjoint: aten.linalg_lu_solve.default(lu, pivots, b, left=left, adjoint=adjoint),
    lambda lu, pivots, b, left, adjoint: _solution(lu, b, left),
)

# ---- symmetric and triangular matrices ------------------------------------------------------------------------------

cholesky = define(
    "linalg_cholesky(Tensor A, bool upper) -> (Tensor L, Tensor info)",
    lambda a, upper: aten.linalg_cholesky_ex.default(a, upper=upper),
    lambda a, upper: (_same(a), _info(a)),
)

ldl_factor = define(
    "linalg_ldl_factor(Tensor A, bool hermitian) -> (Tensor LD, Tensor pivots, Tensor info)",
    lambda a, hermitian: aten.linalg_ldl_factor_ex.default(a, hermitian=hermitian),
    lambda a, hermitian: (_same(a), _pivots(a), _info(a)),
)

ldl_solve = define(
    "linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, bool hermitian) -> Tensor",
    lambda ld, pivots, b, hermitian: aten.linalg_ldl_solve.default(ld, pivots, b, hermitian=hermitian),
    lambda ld, pivots, b, hermitian: _solution(ld, b, True),
)

solve_triangular = define(
    "linalg_solve_triangular(Tensor A, Tensor B, bool upper, bool left, bool unitriangular) -> Tensor",
    lambda a, b, upper, left, unit: torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit),
    lambda a, b, upper, left, unit: _solution(a, b, True),
)

# ---- orthogonal factors, eigenvalues, singular values ---------------------------------------------------------------


def _qr_fake(a: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    batch, m, n = a.shape[:-2], a.shape[-2], a.shape[-1]
    columns = m if mode == "complete" else _least(a)
    q = a.new_empty((0,)) if mode == "r" else empty_matrices(a, batch, m, columns)
    return q, empty_matrices(a, batch, columns, n)


qr = define("linalg_qr(Tensor A, str mode) -> (Tensor Q, Tensor R)", lambda a, mode: torch.linalg.qr(a, mode), _qr_fake)

householder_product = define(
    "linalg_householder_product(Tensor input, Tensor tau) -> Tensor",
    lambda a, tau: torch.linalg.householder_product(a, tau),
    lambda a, tau: _same(a),
)

eigh = define(
    "linalg_eigh(Tensor A, str UPLO, bool compute_v) -> (Tensor eigenvalues, Tensor eigenvectors)",
    lambda a, uplo, compute_v: aten._linalg_eigh.default(a, uplo, compute_v),
    lambda a, uplo, compute_v: (
        _vectors(a, *a.shape[:-1], dtype=_real(a.dtype)),
        _same(a) if compute_v else a.new_empty((0,)),
    ),
)


def _svd_fake(a: Tensor, full_matrices: bool, compute_uv: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch, m, n, k = a.shape[:-2], a.shape[-2], a.shape[-1], _least(a)
    s = _vectors(a, *batch, k, dtype=_real(a.dtype))
    if not compute_uv:
        return a.new_empty((0,)), s, a.new_empty((0,))
    u, vh = (m, n) if full_matrices else (k, k)
    return empty_matrices(a, batch, m, u), s, empty_matrices(a, batch, vh, n)


svd = define(
    "linalg_svd(Tensor A, bool full_matrices, bool compute_uv) -> (Tensor U, Tensor S, Tensor Vh)",
    lambda a, full, compute_uv: aten._linalg_svd.default(a, full, compute_uv),
    _svd_fake,
)


def _complex(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_complex()


eig = define(
    "linalg_eig(Tensor A) -> (Tensor eigenvalues, Tensor eigenvectors)",
    lambda a: torch.linalg.eig(a),
    lambda a: (
        _vectors(a, *a.shape[:-1], dtype=_complex(a.dtype)),
        empty_matrices(a.new_empty((0,), dtype=_complex(a.dtype)), a.shape[:-2], a.shape[-2], a.shape[-1]),
    ),
)

eigvals = define(
    "linalg_eigvals(Tensor A) -> Tensor",
    lambda a: torch.linalg.eigvals(a),
    lambda a: _vectors(a, *a.shape[:-1], dtype=_complex(a.dtype)),
)

matrix_exp = define(
    "linalg_matrix_exp(Tensor A) -> Tensor",
    lambda a: torch.linalg.matrix_exp(a),
    lambda a: a.new_empty(a.shape),
)

# ---- errors ---------------------------------------------------------------------------------------------------------


def _check_errors(info: Tensor, api_name: str, is_matrix: bool) -> Tensor:
    aten._linalg_check_errors.default(info, api_name, is_matrix=is_matrix)
    return info.clone(memory_format=torch.contiguous_format)


# Fails the call if an element of `info` is not 0. It has a result because generated code has no place for calls
# without one.
check_errors = define(
    "linalg_check_errors(Tensor info, str api_name, bool is_matrix) -> Tensor",
    _check_errors,
    lambda info, api_name, is_matrix: info.new_empty(info.shape),
)
# The result is not read.
torch.fx.node.has_side_effect(check_errors)
torch.fx.node.has_side_effect(aten._linalg_check_errors.default)
