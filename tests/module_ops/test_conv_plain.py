"""Convolutions and products of doubles and integers, which have no tuned kernel, and of int8 into int32."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import INTEGERS, arrange, aten
from tests.module_ops.harness import Driver, MakeDriver

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def plain(make_driver: MakeDriver) -> Driver:
    return make_driver("conv_plain_driver", ("conv", "gemm"))


def values(generator: random.Random, sizes: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Integers over the whole range, so that sums wrap."""
    if dtype.is_floating_point:
        return arrange(generator, torch.randn(sizes, dtype=dtype))
    info = torch.iinfo(dtype)
    return arrange(generator, torch.randint(info.min, info.max, sizes, dtype=dtype))


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    tolerance = 1e-11 if wanted.is_floating_point() else 0.0
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, *INTEGERS], ids=str)
def test_convolution(plain: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(3)
    for _ in range(40):
        spatial = generator.randint(1, 3)
        transposed = generator.random() < 0.4
        groups, each, outs = generator.randint(1, 3), generator.randint(1, 3), generator.randint(1, 3)
        kernel = [generator.randint(1, 3) for _ in range(spatial)]
        stride, dilation = ([generator.randint(1, 3) for _ in range(spatial)] for _ in range(2))
        padding = [generator.randint(0, (k - 1) * d) for k, d in zip(kernel, dilation, strict=True)]
        output_padding = [generator.randrange(max(s, d)) if transposed else 0 for s, d in zip(stride, dilation)]  # noqa: B905
        sizes = [generator.randint((k - 1) * d + 1, 9) for k, d in zip(kernel, dilation, strict=True)]
        x = values(generator, [generator.choice([0, 1, 2]), groups * each, *sizes], dtype)
        shape = [groups * each, outs] if transposed else [groups * outs, each]
        weight = values(generator, [*shape, *kernel], dtype)
        bias = values(generator, [groups * outs], dtype) if generator.random() < 0.5 else None
        options = [stride, padding, dilation, transposed, output_padding, groups]
        wanted = reference(x, weight, bias, options)
        numbers = [transposed, groups, *stride, *padding, *dilation, *output_padding]
        (got,) = plain("convolution", [x, weight, bias], numbers, threads=generator.choice([1, 2]))
        same(got, wanted)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, options: list[object]) -> torch.Tensor:
    """Eager's, or in steps: it refuses some integers, and knows no transposed ones."""
    if x.is_floating_point():
        return aten.convolution(x, weight, bias, *options)
    # Exact in double for int8; wider ones in three parts of 22 bits, of which the first two are exact.
    total = torch.zeros([], dtype=torch.int64)
    for shift in (0, 22, 44):
        part = (x.long() >> shift) & 0x3FFFFF
        for other in (0, 22, 44):
            if shift + other >= 64:
                continue
            factor = (weight.long() >> other) & 0x3FFFFF
            product = aten.convolution(part.double(), factor.double(), None, *options).long()
            total = total + (product << (shift + other))
    if bias is not None:
        total = total + bias.long().view(-1, *([1] * (x.dim() - 2)))
    return total.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, *INTEGERS], ids=str)
def test_products(plain: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(4)
    for _ in range(30):
        batch, m, n, k = (generator.choice([1, 2, 5, 70, 0 if generator.random() < 0.2 else 3]) for _ in range(4))
        a, b = values(generator, [batch, m, k], dtype), values(generator, [batch, k, n], dtype)
        added = values(generator, [m, n], dtype)
        out = torch.empty(m, n, dtype=dtype)
        if batch:
            (got,) = plain("mm", [out, a[0], b[0]], threads=2)
            same(got, torch.mm(a[0], b[0]))
        out = torch.empty(batch, m, n, dtype=dtype)
        (got,) = plain("baddbmm", [out, added, a, b], threads=2)
        same(got, torch.baddbmm(added, a, b, beta=2, alpha=3))


def test_int8_into_int32(plain: Driver) -> None:
    generator = random.Random(5)
    for _ in range(120):
        m, n, k = (generator.choice([0, 1, 2, 7, 16, 31, 33, 64, 130]) for _ in range(3))
        if generator.random() < 0.3:
            k = generator.choice([1000, 1025, 2049])
        a, b = values(generator, [m, k], torch.int8), values(generator, [k, n], torch.int8)
        if generator.random() < 0.5:
            a, b = torch.full_like(a, -128), torch.full_like(b, -128)
        if generator.random() < 0.5:
            b = b.t().contiguous().t()
        out = torch.full((m, n), 77, dtype=torch.int32)
        (got,) = plain("_int_mm", [out, a, b], threads=generator.choice([1, 2]))
        assert torch.equal(got, (a.double() @ b.double()).int())
