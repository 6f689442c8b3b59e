"""Linear algebra against torch: factors and their conventions element by element, the rest by what defines it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.module_ops.cases import arrange
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

pytestmark = pytest.mark.torch

GROUPS = (
    "linalg_lu", "lu_unpack", "linalg_cholesky", "linalg_triangular", "linalg_qr", "linalg_ldl", "linalg_eigh",
    "linalg_svd", "linalg_eig", "linalg_matrix_exp", "linalg_check",
)  # fmt: skip
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SIZES = [0, 1, 2, 5, 17, 33, 70, 130]


@pytest.fixture(scope="module")
def linalg(make_driver: MakeDriver) -> Driver:
    return make_driver("linalg_driver", GROUPS)


def rounding(dtype: torch.dtype) -> float:
    return 1e-4 if dtype in (torch.float32, torch.complex64) else 1e-11


def wide(x: Tensor) -> Tensor:
    return x.to(torch.complex128)


def near(got: Tensor, want: Tensor, dtype: torch.dtype, factor: float = 1.0) -> None:
    assert got.shape == want.shape
    scale = want.abs().max().item() if want.numel() else 1.0
    torch.testing.assert_close(wide(got), wide(want), rtol=0, atol=rounding(dtype) * factor * max(scale, 1e-30))


def orthonormal(q: Tensor) -> None:
    near(q.mH @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1), q.dtype)


def matrices(dtype: torch.dtype, tall: bool = False) -> Iterator[tuple[int, int, Tensor]]:
    generator = random.Random(7)
    torch.manual_seed(7)
    for n in SIZES:
        for m in (n, 2 * n + 3, n // 2) if tall else (n,):
            yield m, n, arrange(generator, torch.randn(2, m, n, dtype=dtype))


def conditioned(n: int, dtype: torch.dtype, condition: float) -> Tensor:
    q, _ = torch.linalg.qr(torch.randn(n, n, dtype=dtype))
    p, _ = torch.linalg.qr(torch.randn(n, n, dtype=dtype))
    return (q * torch.logspace(0, -torch.tensor(condition).log10().item(), n).to(dtype)) @ p


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lu(linalg: Driver, dtype: torch.dtype) -> None:
    for m, n, a in matrices(dtype, tall=True):
        lu, pivots, info = linalg("lu_factor", [a])
        p, lower, upper = linalg("lu_unpack", [lu, pivots], [1, 1])
        near(p @ lower @ upper, a, dtype)
        assert lower.abs().max().item() <= 1.5 if lower.numel() else True
        if a.is_contiguous():  # other copies have equal rows, where pivots are a matter of rounding
            assert torch.equal(pivots, torch.linalg.lu_factor_ex(a)[1])
            assert info.eq(0).all()
        assert pivots.dtype == torch.int32
        assert lu.shape == (2, m, n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_solutions(linalg: Driver, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    for n in SIZES:
        # Residuals, against what backward stability allows, do not depend on the condition.
        a = torch.stack([conditioned(n, dtype, c) for c in (10.0, 1e6)]) if n > 1 else torch.rand(2, n, n).to(dtype) + 1
        b = torch.randn(2, n, 3, dtype=dtype)
        for transposed in (0, 1) if not dtype.is_complex else (0,):
            x, lu, pivots, _ = linalg("solve", [a, b], [1, transposed])
            near_residual(a @ x, b, a, x)
            x = linalg("solve", [a, b.mT], [0, transposed])[0]
            near_residual(x @ a, b.mT, a, x)
        lu, pivots, _ = linalg("lu_factor", [a])
        for adjoint, matrix in ((0, a), (1, a.mH)):
            x = linalg("lu_solve", [lu, pivots, b], [1, adjoint])[0]
            near_residual(matrix @ x, b, a, x)
            x = linalg("lu_solve", [lu, pivots, b.mT], [0, adjoint])[0]
            near_residual(x @ matrix, b.mT, a, x)
        inverse, _ = linalg("inv", [a])
        near_residual(a @ inverse, torch.eye(n, dtype=dtype).expand_as(a), a, inverse)


def near_residual(got: Tensor, want: Tensor, a: Tensor, x: Tensor) -> None:
    if want.numel() == 0:
        return
    scale = (a.abs().amax((-2, -1)) * x.abs().amax((-2, -1)) * a.shape[-1]).reshape(-1, 1, 1)
    assert ((got - want).abs() / (scale + 1)).max().item() < rounding(a.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_determinants(linalg: Driver, dtype: torch.dtype) -> None:
    for _, n, a in matrices(dtype):
        if not a.is_contiguous():
            a = torch.randn(2, n, n, dtype=dtype).mT
        sign, logarithm, *_ = linalg("slogdet", [a])
        want = torch.linalg.slogdet(a.to(torch.complex128 if dtype.is_complex else torch.float64))
        near(sign, want.sign, dtype, 100)
        torch.testing.assert_close(logarithm.double(), want.logabsdet, rtol=1e-3, atol=1e-3)
        if n <= 20:
            near(linalg("det", [a])[0], torch.linalg.det(want.sign.new_tensor(a)), dtype, 100)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_positive_definite_and_triangular(linalg: Driver, dtype: torch.dtype) -> None:
    for _, n, a in matrices(dtype):
        p, b = a @ a.mH + (n + 1) * torch.eye(n, dtype=dtype), torch.randn(2, n, 3, dtype=dtype)
        for upper in (0, 1):
            factor, info = linalg("cholesky", [p.tril() if not upper else p.triu()], [upper])
            near(factor, torch.linalg.cholesky(p, upper=bool(upper)), dtype)
            assert info.eq(0).all()
            near(linalg("cholesky_solve", [b[0], factor], [upper])[0], torch.linalg.solve(p, b[0].expand_as(b)), dtype)
            near(linalg("cholesky_inverse", [factor], [upper])[0], torch.linalg.inv(p), dtype)
            for left in (0, 1):
                for unit in (0, 1):
                    x = linalg("solve_triangular", [factor, b if left else b.mT], [upper, left, unit])[0]
                    t = factor.clone()
                    if unit:
                        t.diagonal(dim1=-2, dim2=-1).fill_(1)
                    near_residual(t @ x if left else x @ t, b if left else b.mT, t, x)
            for transpose in (0, 1):
                x, copied = linalg("triangular_solve", [b, factor], [upper, transpose, 0])
                near_residual((factor.mT if transpose else factor) @ x, b, factor, x)
                assert torch.equal(copied, factor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indefinite(linalg: Driver, dtype: torch.dtype) -> None:
    for _, n, a in matrices(dtype):
        if not a.is_contiguous():
            a = torch.randn(2, n, n, dtype=dtype)
        b = torch.randn(2, n, 3, dtype=dtype)
        for hermitian in (0, 1):
            s = a + (a.mH if hermitian else a.mT)
            ld, pivots, _ = linalg("ldl_factor", [s], [hermitian])
            want = torch.linalg.ldl_factor_ex(s, hermitian=bool(hermitian))
            if n < 40:  # beyond, rounding may choose other pivots
                assert torch.equal(pivots, want.pivots)
            x = linalg("ldl_solve", [ld, pivots, b], [hermitian])[0]
            near_residual(s @ x, b, s, x)
            x = linalg("ldl_solve", [want.LD, want.pivots, b], [hermitian])[0]
            near_residual(s @ x, b, s, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_orthogonal_factors(linalg: Driver, dtype: torch.dtype) -> None:
    for m, n, a in matrices(dtype, tall=True):
        r, tau = linalg("geqrf", [a])
        k = min(m, n)
        for mode in ("reduced", "complete", "r"):
            q, triangle = linalg("qr", [a], text=mode)
            near(triangle, r[:, : triangle.shape[-2]].triu(), dtype)
            if mode == "r":
                assert q.shape == (0,)
                continue
            near(q @ triangle, a, dtype)
            orthonormal(q)
            assert (
                (triangle.diagonal(dim1=-2, dim2=-1).imag.abs().max().item() == 0) if dtype.is_complex and k else True
            )
        if a.is_contiguous() and k < 60 and m != n:
            # Of a square complex matrix, and a large one, LAPACKs differ in the last reflector.
            near(r, torch.geqrf(a)[0], dtype, 10)
            near(tau, torch.geqrf(a)[1], dtype, 10)
        if m >= n:
            near(linalg("householder_product", [r, tau])[0], torch.linalg.householder_product(r, tau), dtype)
        full = linalg("qr", [a], text="complete")[0]
        other = torch.randn(2, m, 5, dtype=dtype)
        for transpose, q in ((0, full), (1, full.mH)):
            near(linalg("ormqr", [r, tau, other], [1, transpose])[0], q @ other, dtype)
            near(linalg("ormqr", [r, tau, other.mT], [0, transpose])[0], other.mT @ q, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_singular_values(linalg: Driver, dtype: torch.dtype) -> None:
    for m, n, a in [
        *matrices(dtype, tall=True),
        (40, 30, torch.randn(40, 4, dtype=dtype) @ torch.randn(4, 30, dtype=dtype)),
    ]:
        want = torch.linalg.svdvals(wide(a))
        near(linalg("svd", [a], [0, 0])[1], want, dtype)
        for full in (0, 1):
            u, s, vh = linalg("svd", [a], [full, 1])
            k = min(m, n)
            near(s, want, dtype)
            near((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, dtype)
            orthonormal(u)
            orthonormal(vh.mH)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvalues(linalg: Driver, dtype: torch.dtype) -> None:
    for _, n, a in matrices(dtype):
        for uplo in "LU":
            h = a.tril() + a.tril(-1).mH if uplo == "L" else a.triu() + a.triu(1).mH
            h = h - 1j * torch.diag_embed(h.diagonal(dim1=-2, dim2=-1).imag) if dtype.is_complex else h
            values, vectors = linalg("eigh", [a], [1], text=uplo)
            near(values, torch.linalg.eigvalsh(wide(h)), dtype)
            near((vectors * values.unsqueeze(-2)) @ vectors.mH, h, dtype)
            orthonormal(vectors)
            near(linalg("eigh", [a], [0], text=uplo)[0], values, dtype)
        for x in (a, a.triu(), a.tril(), torch.eye(n, dtype=dtype).expand(2, n, n)):
            values, vectors = linalg("eig", [x])
            near(wide(x) @ wide(vectors), wide(vectors) * wide(values).unsqueeze(-2), dtype, 10)
            near(vectors.norm(dim=-2), torch.ones(2, n), dtype)
            near(values.sum(-1), x.diagonal(dim1=-2, dim2=-1).sum(-1), dtype, 10)
            assert linalg("eigvals", [x])[0].shape == values.shape


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exponential(linalg: Driver, dtype: torch.dtype) -> None:
    for _, n, a in matrices(dtype):
        for size in (1e-9, 1e-3, 0.3, 1.0, 4.0):
            x = a * size / max(n, 1) ** 0.5
            near(linalg("matrix_exp", [x])[0], torch.linalg.matrix_exp(wide(x)), dtype)


def test_failures(linalg: Driver) -> None:
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 2, 2] = 0
    assert linalg("inv", [a])[1].tolist() == [0, 3]
    assert linalg("lu_factor", [a])[2].tolist() == [0, 3]
    assert linalg("cholesky", [a], [0])[1].tolist() == [0, 3]
    with pytest.raises(OperatorError, match=r"linalg\.inv: \(Batch element 1\): The diagonal element 3 is zero"):
        linalg("check_errors", [torch.tensor([0, 3], dtype=torch.int32)], [0], text="linalg.inv")
    with pytest.raises(OperatorError, match=r"linalg\.cholesky: The factorization could not be completed"):
        linalg("check_errors", [torch.tensor(2, dtype=torch.int32)], [1], text="linalg.cholesky")
    a[1, 0, 1] = float("nan")
    calls: list[tuple[str, list[int], dict[str, Any]]] = [
        ("eigh", [1], {"text": "U"}),
        ("svd", [0, 1], {}),
        ("eig", [], {}),
    ]
    for name, ints, more in calls:
        with pytest.raises(OperatorError):
            linalg(name, [a], ints, **more)
    assert linalg("matrix_exp", [a])[0][1].isnan().all()
    with pytest.raises(OperatorError, match="Pivots given to lu_solve"):
        linalg("lu_solve", [torch.eye(2), torch.tensor([1, 7], dtype=torch.int32), torch.eye(2)], [1, 0])


def test_threads(linalg: Driver) -> None:
    a = torch.randn(300, 12, 12)
    for name, ints in (("inv", []), ("svd", [0, 1]), ("eig", [])):
        for one, two in zip(linalg(name, [a], ints), linalg(name, [a], ints, threads=2), strict=True):
            assert torch.equal(one, two)
