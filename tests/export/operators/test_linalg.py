"""Linear algebra end to end: results, errors and gradients of archives against eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotpack.errors import AotpackError
from tests.support.building import Build, assert_close

pytestmark = pytest.mark.torch
L = torch.linalg


def _inputs() -> tuple[Tensor, ...]:
    a = torch.randn(2, 4, 4, dtype=torch.float64)
    return a, torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64), a @ a.mT + torch.eye(4)


def _everything(a: Tensor, b: Tensor, v: Tensor, p: Tensor) -> tuple[Tensor, ...]:
    least = [L.lstsq(b, a, driver="gels"), L.lstsq(b, a), L.lstsq(b[0], a[0], driver="gelsd")]
    return (
        L.inv(a), L.det(a), *L.slogdet(a), L.solve(a, b), L.solve(a, v), L.solve(a.mT, b.mT, left=False),
        L.cholesky(p), L.cholesky(p, upper=True), *L.qr(b), *L.qr(b.mT, "complete"), L.svdvals(b), L.eigvalsh(p),
        L.matrix_exp(a), L.pinv(b), L.pinv(p, hermitian=True), *L.lu(b), *L.lu_factor(a), L.cond(a), L.matrix_rank(b),
        L.matrix_power(a, -2), L.matrix_norm(b, "nuc"), L.tensorinv(a[0].reshape(4, 2, 2), ind=1), L.vander(v),
        L.eigvals(p).real.sort().values, torch.cholesky_inverse(L.cholesky(p)), torch.cholesky_solve(b, L.cholesky(p)),
        *torch.geqrf(b), *torch.triangular_solve(b, a), L.ldl_factor(p)[0].tril(),
        *(x for result in least for x in (result.solution, result.residuals, result.rank, result.singular_values)),
    )  # fmt: skip


def test_results_and_errors(build: Build) -> None:
    torch.manual_seed(0)
    model = lambda a, b, v, p: tuple(x.clone() for x in _everything(a, b, v, p))  # noqa: E731
    archive = build(model, _inputs())
    for _ in range(2):
        x = _inputs()
        got, want = archive(*x), model(*x)
        assert_close(got, want, 1e-8)
        assert [g.stride() for g in got] == [w.stride() for w in want]
    a, b, v, p = _inputs()
    a[1] = 0
    # Of several checks that fail, generated code may come to any first.
    singular = r"\(Batch element 1\): (The diagonal element 1 is zero|The solver failed|U\[1,1\] is zero)"
    with pytest.raises(AotpackError, match=singular):
        archive(a, b, v, p)
    a, b, v, p = _inputs()
    p[0, 2, 2] = -5
    with pytest.raises(AotpackError, match=r"linalg\.cholesky: \(Batch element 0\): The factorization could not"):
        archive(a, b, v, p)


def _gradients(a: Tensor, b: Tensor, v: Tensor, p: Tensor) -> tuple[Tensor, ...]:
    a, b, v, p = (x.requires_grad_() for x in (a, b, v, p))
    found: list[Tensor] = []
    for y, *xs in (
        (L.det(a), a),
        (L.slogdet(a.mT).logabsdet, a),
        (L.solve(a, b) ** 2, a, b),
        (L.solve(a, v) ** 2, a, v),
        (L.inv(a) ** 2, a),
        (L.cholesky(p) ** 2, p),
        (L.qr(a)[1] ** 2, a),
        (L.svdvals(a) ** 3, a),
        (L.eigvalsh(p) ** 2, p),
        (L.pinv(b) ** 2, b),
        (L.matrix_exp(a) ** 2, a),
        (L.lu_factor(a)[0] ** 2, a),
        (L.solve_triangular(a, b, upper=True) ** 2, a, b),
        (L.lstsq(b, a, driver="gels").solution ** 2, a, b),
        (L.lstsq(b, a).solution ** 2, a, b),
    ):
        found += torch.autograd.grad(y.sum(), xs)
    return tuple(found)


def test_gradients(build: Build) -> None:
    torch.manual_seed(1)
    archive = build(_gradients, _inputs())
    x = _inputs()
    for got, want in zip(archive(*x), _gradients(*(y.clone() for y in x)), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-7, atol=1e-7 * want.abs().max().item())


def test_joint(build: Build) -> None:
    """A loss and its gradients, with a check among what is traced."""
    torch.manual_seed(2)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5, 5) + 3 * torch.eye(5))

        def forward(self, x: Tensor) -> Tensor:
            return (L.solve(self.weight, x) ** 2).sum() - L.slogdet(self.weight).logabsdet

    model, x = Model(), torch.randn(5, 3)
    result = build(model, (x,), mode="joint")(x)
    loss = model(x)
    loss.backward()
    torch.testing.assert_close(result["gradients"]["weight"], model.weight.grad, rtol=1e-4, atol=1e-4)
