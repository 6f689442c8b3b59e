"""Views of complex tensors, and running products."""

from __future__ import annotations

import random

import pytest
import torch

from aotpack.export.ops.complex import complex_cumprod
from tests.module_ops.cases import arrange, shapes
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

DTYPES = [torch.complex64, torch.complex128]


@pytest.fixture(scope="module")
def ops(make_driver: MakeDriver) -> Driver:
    return make_driver("complex_driver", ("complex",))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views(ops: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(1)
    for sizes in shapes(generator, 40):
        z = arrange(generator, torch.randn(sizes, dtype=dtype))
        [parts] = ops("view_as_real", [z])
        assert torch.equal(parts, torch.view_as_real(z))
        assert parts.stride() == torch.view_as_real(z).stride()
        [back] = ops("view_as_complex", [torch.view_as_real(z)])
        assert torch.equal(back, z)
        assert back.stride() == z.stride()
        dims = generator.sample(range(z.dim()), z.dim())
        [moved] = ops("permute", [z], [d - z.dim() if generator.random() < 0.5 else d for d in dims])
        assert torch.equal(moved, z.permute(dims))
        assert moved.stride() == z.permute(dims).stride()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_products(ops: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(2)
    tolerance = 1e-4 if dtype == torch.complex64 else 1e-12
    for sizes in [*shapes(generator, 40), [300, 40], [3, 2000]]:
        z = arrange(generator, torch.randn(sizes, dtype=torch.complex128).to(dtype))
        for dim in range(-z.dim(), max(z.dim(), 1)):
            [got] = ops("cumprod", [z], [dim], threads=generator.randint(1, 4))
            assert got.dtype == dtype
            want = torch.cumprod(z.to(torch.complex128), dim)
            torch.testing.assert_close(got.to(torch.complex128), want, rtol=tolerance, atol=tolerance)
            assert got.is_contiguous()


def test_writes(ops: Driver) -> None:
    generator = random.Random(3)
    for sizes in shapes(generator, 30):
        source = arrange(generator, torch.randn(sizes, dtype=torch.complex64))
        # A transposed one, where there is more than one dim.
        state = torch.zeros(sizes[::-1], dtype=torch.complex64).permute(list(range(len(sizes)))[::-1])
        [got] = ops("store", [state, source])
        assert torch.equal(got, source)
        assert torch.equal(state, source)


def test_refusals(ops: Driver) -> None:
    real = torch.randn(3, 4)
    with pytest.raises(OperatorError, match="last dimension of size 2"):
        ops("view_as_complex", [real])
    with pytest.raises(OperatorError, match="last dimension with stride 1"):
        ops("view_as_complex", [torch.randn(2, 4).t()])
    with pytest.raises(OperatorError, match="stride divisible by 2"):
        ops("view_as_complex", [torch.randn(4, 3)[:, :2]])
    with pytest.raises(OperatorError, match="float16 is not supported"):
        ops("view_as_complex", [torch.randn(4, 2).half()])
    with pytest.raises(OperatorError, match="only supported for complex"):
        ops("view_as_real", [real])
    with pytest.raises(OperatorError, match="duplicate dims"):
        ops("permute", [real], [0, 0])
    with pytest.raises(OperatorError, match="number of dims"):
        ops("permute", [real], [0])
    with pytest.raises(OperatorError, match="of real numbers"):
        ops("cumprod", [real], [0])


def test_the_operator_keeps_to_its_contract() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    torch.library.opcheck(complex_cumprod, (z, 1))
    torch.library.opcheck(complex_cumprod, (z.t(), 0))
