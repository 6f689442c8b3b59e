"""Fourier transforms: any length, dims, layout and normalisation, against torch's in double precision."""

from __future__ import annotations

import random

import pytest
import torch

from aotpack.export import ops
from aotpack.export.ops.fft import fft_c2c, fft_c2r, fft_r2c
from tests.module_ops.cases import arrange
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

aten = torch.ops.aten
REALS = [torch.float32, torch.float64]
# Powers, products of the small factors, primes with and without Bluestein's algorithm.
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 30, 31, 64, 77, 97, 100, 121, 128, 210, 251, 384, 509, 1000]
LENGTHS += [1021, 2048, 2053, 6007]


@pytest.fixture(scope="module")
def fft(make_driver: MakeDriver) -> Driver:
    return make_driver("fft_driver", ("fft",))


def random_values(sizes: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(sizes, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)


def complex_of(dtype: torch.dtype) -> torch.dtype:
    return torch.complex64 if dtype == torch.float32 else torch.complex128


def assert_close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    """In the norm, as rounding errors of a transform spread over all of its points."""
    assert got.dtype == dtype
    assert got.shape == want.shape
    unit = 1.2e-7 if dtype in (torch.float32, torch.complex64) else 2.3e-16
    scale = float(want.abs().pow(2).mean().sqrt()) if want.numel() else 0.0
    worst = float((got.to(want.dtype) - want).abs().max()) if want.numel() else 0.0
    assert worst <= 40 * unit * scale + 1e-300


def assert_lies(got: torch.Tensor, order: list[int]) -> None:
    dims = [d for d in order if got.shape[d] > 1]
    assert [got.stride(d) for d in dims] == sorted((got.stride(d) for d in dims), reverse=True)
    assert got.permute(order).is_contiguous()


def places(generator: random.Random, rank: int) -> tuple[list[int], list[int]]:
    """Dims to transform and an order of the result's dims."""
    dims = generator.sample(range(rank), generator.randint(1, rank))
    return dims, generator.sample(range(rank), rank)


@pytest.mark.parametrize("real", REALS, ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(fft: Driver, length: int, real: torch.dtype) -> None:
    generator = random.Random(length)
    wide = torch.complex128
    for lines in (1, 3, 21):
        x = random_values([lines, length], real)
        mode, threads = generator.randrange(3), generator.randint(1, 3)
        [got] = fft("fft_r2c", [x], [1, 1, mode, 1, 0, 1], threads=threads)
        assert_close(got, aten._fft_r2c(x.double(), [1], mode, True), complex_of(real))
        [got] = fft("fft_r2c", [x], [1, 1, mode, 0, 0, 1], threads=threads)
        assert_close(got, aten._fft_r2c(x.double(), [1], mode, False), complex_of(real))
        z = random_values([lines, length], complex_of(real))
        for forward in (0, 1):
            [got] = fft("fft_c2c", [z], [1, 1, mode, forward, 0, 1], threads=threads)
            assert_close(got, aten._fft_c2c(z.to(wide), [1], mode, bool(forward)), complex_of(real))
        half = z[:, : length // 2 + 1]
        [got] = fft("fft_c2r", [half], [1, 1, mode, length, 0, 1], threads=threads)
        # What the first and the last element have of an imaginary part does not count.
        clean = half.to(wide).clone()
        clean.imag[:, 0] = 0
        if length % 2 == 0:
            clean.imag[:, -1] = 0
        assert_close(got, aten._fft_c2r(clean, [1], mode, length), real)


@pytest.mark.parametrize("real", REALS, ids=str)
def test_dims_layouts_and_orders(fft: Driver, real: torch.dtype) -> None:
    generator = random.Random(3)
    wide = torch.complex128
    for _ in range(150):
        rank = generator.randint(1, 4)
        sizes = [generator.choice([1, 2, 3, 4, 5, 6, 9, 16, 17]) for _ in range(rank)]
        dims, order = places(generator, rank)
        mode, threads = generator.randrange(3), generator.randint(1, 4)
        head, tail = [len(dims), *dims, mode], order
        x = arrange(generator, random_values(sizes, real))
        z = arrange(generator, random_values(sizes, complex_of(real)))
        for onesided in (False, True):
            [got] = fft("fft_r2c", [x], [*head, onesided, *tail], threads=threads)
            want = torch.fft.fftn(x.to(wide), dim=dims, norm=("backward", "ortho", "forward")[mode])
            want = want.narrow(dims[-1], 0, sizes[dims[-1]] // 2 + 1) if onesided else want
            assert_close(got, want, complex_of(real))
            assert_lies(got, order)
        forward = generator.random() < 0.5
        [got] = fft("fft_c2c", [z], [*head, forward, *tail], threads=threads)
        assert_close(got, aten._fft_c2c(z.to(wide), dims, mode, forward), complex_of(real))
        assert_lies(got, order)
        # A spectrum of a real signal, and more of it than counts.
        length = generator.randint(1, 2 * sizes[dims[-1]] - 1)
        sizes[dims[-1]] = length
        y = torch.randn(sizes, dtype=torch.float64)
        spectrum = arrange(generator, torch.fft.fftn(y, dim=dims).to(complex_of(real)))
        [got] = fft("fft_c2r", [spectrum], [*head, length, *tail], threads=threads)
        assert_close(got, aten._fft_c2r(spectrum.to(wide), dims, mode, length), real)
        assert_lies(got, order)


def test_large_batches_on_threads(fft: Driver) -> None:
    z = random_values([37, 40, 50], torch.complex64)
    for dims in ([0], [1], [2], [0, 2], [2, 1, 0]):
        [got] = fft("fft_c2c", [z.transpose(0, 2)], [len(dims), *dims, 1, 1, 0, 1, 2], threads=4)
        want = aten._fft_c2c(z.transpose(0, 2).to(torch.complex128), dims, 1, True)
        assert_close(got, want, torch.complex64)


def test_no_elements_and_no_dims(fft: Driver) -> None:
    z = torch.zeros(3, 0, 4, dtype=torch.complex64)
    [got] = fft("fft_c2c", [z], [1, 2, 0, 1, 0, 1, 2])
    assert got.shape == (3, 0, 4)
    [got] = fft("fft_r2c", [z.real], [1, 2, 0, 1, 0, 1, 2])
    assert got.shape == (3, 0, 3)
    [got] = fft("fft_c2r", [z], [1, 2, 0, 6, 0, 1, 2])
    assert got.shape == (3, 0, 6)
    z = random_values([3, 5], torch.complex64)
    [got] = fft("fft_c2c", [z], [0, 0, 1, 1, 0])
    assert torch.equal(got, z)
    assert_lies(got, [1, 0])


def test_refusals(fft: Driver) -> None:
    z = random_values([3, 5], torch.complex64)
    with pytest.raises(OperatorError, match="dims must be unique"):
        fft("fft_c2c", [z], [2, 1, -1, 0, 1, 0, 1])
    with pytest.raises(OperatorError, match="the argument is real"):
        fft("fft_c2c", [z.real], [1, 1, 0, 1, 0, 1])
    with pytest.raises(OperatorError, match="the argument is complex"):
        fft("fft_r2c", [z], [1, 1, 0, 1, 0, 1])
    with pytest.raises(OperatorError, match="of float16 is not supported"):
        fft("fft_r2c", [z.real.half()], [1, 1, 0, 1, 0, 1])
    with pytest.raises(OperatorError, match="to 12 real numbers of 5 complex ones"):
        fft("fft_c2r", [z], [1, 1, 0, 12, 0, 1])
    with pytest.raises(OperatorError, match=r"number of data points \(0\)"):
        fft("fft_c2r", [z], [1, 1, 0, 0, 0, 1])
    with pytest.raises(OperatorError, match="Dimension out of range"):
        fft("fft_c2c", [z], [1, 2, 0, 1, 0, 1])


def test_operators_keep_to_their_contract() -> None:
    """Schema, fake sizes and strides (symbolic ones too), no aliasing."""
    z = torch.randn(3, 4, 5, dtype=torch.complex64)
    for x in (z, z.transpose(0, 2), z[::2]):
        torch.library.opcheck(fft_c2c, (x, [0, 2], 1, True, [2, 0, 1]))
        torch.library.opcheck(fft_r2c, (x.real, [2], 0, True, [2, 0, 1]))
        torch.library.opcheck(fft_r2c, (x.real, [0, 2], 0, False, [0, 1, 2]))
        torch.library.opcheck(fft_c2r, (x, [0, 2], 2, x.shape[2], [1, 0, 2]))
    assert {fft_c2c, fft_r2c, fft_c2r} <= set(ops.C_SHIMS)
