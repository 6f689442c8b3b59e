"""Complex tensors in archives: inputs, outputs, arithmetic, conjugate views, state, gradients, sizes that vary."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from tests.export.conftest import Build, assert_close


class Arithmetic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 5, dtype=torch.complex64))
        self.register_buffer("total", torch.zeros(8, dtype=torch.complex64))

    def forward(self, z: Tensor, w: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        self.total += z.sum(0)
        y = (z * w.conj() + 2j * x - (1 - 1j)) / (w + 3)
        edge = F.pad(y, (1, 2), value=1.5)
        return (
            z.conj(),
            y,
            y.abs(),
            y.angle(),
            y.t(),
            y.imag[:, 1:],
            torch.cat([y[:, 3:], x.to(torch.complex64)], 1),
            torch.where(x > 0, y, x),
            edge.masked_fill(edge.real > 0, 7.0),
            y @ self.weight,
            F.linear(y, self.weight.t(), self.weight[0]),
            torch.einsum("bi,ci->bc", y, z.conj()),
            y.exp().log().sqrt().tanh(),
            y.prod(1),
            y.cumsum(0),
            torch.view_as_real(y.flip(0)),
            torch.view_as_complex(torch.stack([x, -x], -1)),
            torch.complex(x, x[:1]),
            (y == y.clone()).all(),
            y.to(torch.complex128).mean(1),
            torch.fft.ifft(torch.fft.fft(y) * w).real,
        )


def call(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    w = torch.randn(8, dtype=torch.complex64)
    return torch.randn(rows, 8, dtype=torch.complex64), w, torch.randn(rows, 8)


def test_arithmetic_of_any_number_of_rows(build: Build) -> None:
    torch.manual_seed(0)
    model = Arithmetic().eval()
    total = model.total.clone()
    archive = build(
        model, call(3), dynamic_shapes={"z": {0: Dim("rows", max=64)}, "w": None, "x": {0: Dim("rows", max=64)}}
    )
    context = archive.context()
    model.total = total
    for rows in (3, 1, 17):
        z, w, x = call(rows)
        with torch.no_grad():
            expected = model(z, w, x)
            got = context(z, w, x)
            assert_close(got, expected, 1e-4)
        for a, b in zip(got, expected, strict=True):
            assert torch.as_tensor(a).dtype == b.dtype
    z, w, x = call(5)
    # Layouts that were not traced: other strides, an offset, stride 0.
    z2 = torch.randn(8, 10, dtype=torch.complex64)[:, ::2].t()
    with torch.no_grad():
        assert_close(context(z2, w, x), model(z2, w, x), 1e-4)
        z3 = z[:1].expand(5, 8)
        assert_close(context(z3, w, x), model(z3, w, x), 1e-4)


def test_numpy_in_and_out(build: Build) -> None:
    def model(z: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        return z * z.conj(), d.reciprocal()

    z, d = torch.randn(4, 6, dtype=torch.complex64), torch.randn(3, dtype=torch.complex128)
    archive = build(model, (z, d))
    square, inverse = archive(z.numpy(), d.numpy())
    assert np.asarray(square).dtype == np.complex64
    assert np.asarray(inverse).dtype == np.complex128
    np.testing.assert_allclose(np.asarray(square), (z * z.conj()).numpy(), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(inverse), (1 / d).numpy(), rtol=1e-12)


def test_gradients(build: Build) -> None:
    def model(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
            spectrum = torch.fft.rfft2(x) * w
            back = torch.fft.irfft2(spectrum, s=x.shape[-2:])
            frames = torch.stft(back.flatten(1), 8, 4, window=torch.ones(8), return_complex=True)
            loss = frames.abs().sum() + (spectrum[..., 1:].exp() / (w[1:] * w[1:] + 2)).abs().pow(2).mean()
            grads = torch.autograd.grad(loss, (x, w))
        return loss.detach(), *grads

    x, w = torch.randn(2, 6, 10), torch.randn(6, dtype=torch.complex64) * 0.1
    archive = build(model, (x, w))
    for _ in range(2):
        x, w = torch.randn(2, 6, 10), torch.randn(6, dtype=torch.complex64) * 0.1
        assert_close(archive(x, w), model(x, w), 1e-3)


def test_complex_numbers_in_a_backward(build: Build) -> None:
    """The backward of a product with a number is one with its conjugate."""

    def model(z: Tensor, x: Tensor) -> list[Tensor]:
        z, x = z.detach().requires_grad_(), x.detach().requires_grad_()
        results = [z * (2 + 3j), z / (1 - 2j), (1 + 1j) / z, z + 1j, (3 - 1j) - z, z**2, x * (0.1 + 3j), x / (1 - 1j)]
        weights = torch.arange(1.0, 9.0, dtype=x.dtype).reshape(2, 4)
        return [
            gradient
            for result in results
            for gradient in torch.autograd.grad((result.real * weights + result.imag).sum(), (z, x), allow_unused=True)
            if gradient is not None
        ]

    z, x = torch.randn(2, 4, dtype=torch.complex64), torch.randn(2, 4)
    archive = build(model, (z, x))
    for _ in range(2):
        got, wanted = archive(z, x), model(z.to(torch.complex128), x.double())
        assert len(wanted) == 8
        assert_close(got, wanted, 1e-5)
        assert [g.dtype for g in got] == [torch.complex64] * 6 + [torch.float32] * 2
        z, x = torch.randn(2, 4, dtype=torch.complex64), torch.randn(2, 4)


def test_logcumsumexp(build: Build) -> None:
    def model(z: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        w = w.detach().requires_grad_()
        sums = torch.logcumsumexp(w, 1)
        (gradient,) = torch.autograd.grad((sums * sums.conj()).real.sum() + sums.imag[:, 2].sum(), w)
        return torch.logcumsumexp(z, 0), torch.logcumsumexp(z, -1), gradient

    def values(rows: int) -> tuple[Tensor, Tensor]:
        return torch.randn(rows, 5, dtype=torch.complex64) * 5, torch.randn(rows, 5, dtype=torch.complex128)

    archive = build(model, values(3), dynamic_shapes={"z": {0: Dim("rows", max=64)}, "w": {0: Dim("rows", max=64)}})
    for rows in (3, 1, 40):
        z, w = values(rows)
        assert_close(archive(z, w), model(z.to(torch.complex128), w), 2e-6)
        assert_close(archive(z.flip(1), w.t().contiguous().t()), model(z.to(torch.complex128).flip(1), w), 2e-6)
    # Infinite and no numbers, in every order of two and then one more.
    parts = torch.tensor([math.inf, -math.inf, math.nan, 1.0, -0.0])
    each = torch.complex(*torch.meshgrid(parts, parts, indexing="ij")).flatten()
    for third in (0.5 + 1j, complex(-math.inf, 2.0)):
        pairs = torch.cartesian_prod(each, each)[:, [0, 1, 1]].contiguous()
        pairs[:, 2] = third
        for block in pairs.split(64):
            z = torch.nn.functional.pad(block, (0, 2))
            got, wanted = archive(z, z.to(torch.complex128))[1], torch.logcumsumexp(z, 1)
            assert torch.equal(got.isnan(), wanted.isnan())
            torch.testing.assert_close(got.real, wanted.real, equal_nan=True)
            # Where the sum is 0 or infinite the angle is whatever came of it.
            finite = wanted.real.isfinite()
            torch.testing.assert_close(got.imag[finite], wanted.imag[finite], equal_nan=True)
