"""Packing at run time gives, bit for bit, what packing at build time gives, for weights of any strides."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from aotpack.export import ops
from aotpack.export.ops.weight_packing import pack_conv, pack_linear
from tests.module_ops.cases import arrange
from tests.module_ops.harness import Driver, OperatorError

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8]


def bits(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Any bit patterns, NaN among them."""
    element = torch.empty((), dtype=dtype).element_size()
    return torch.randint(-128, 128, (*sizes, element), dtype=torch.int8).view(dtype).squeeze(-1)


def assert_same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype is want.dtype
    assert got.shape == want.shape
    assert got.is_contiguous()
    assert torch.equal(got.flatten().view(torch.int8), want.flatten().view(torch.int8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_linear(kernel_driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(5)
    sizes = [(1, 1), (32, 1), (1, 40), (33, 7), (64, 100), (70, 300), (0, 4), (4, 0), (200, 1100)]
    sizes += [(generator.randint(1, 100), generator.randint(1, 90)) for _ in range(40)]
    for n, k in sizes:
        weight = arrange(generator, bits((n, k), dtype))
        [got] = kernel_driver("pack_linear", [weight], threads=generator.randint(1, 3))
        assert_same_bits(got, pack_linear(weight))


def convolutions(generator: random.Random) -> Iterator[tuple[torch.Size, int, bool]]:
    """(weight sizes, groups, transposed)"""
    yield torch.Size((8, 1, 3, 3)), 8, False  # depthwise
    yield torch.Size((8, 1, 1)), 8, False
    yield torch.Size((8, 1, 3)), 8, True
    yield torch.Size((48, 4, 3, 3)), 12, False  # few channels per group
    yield torch.Size((40, 1, 5)), 20, False
    yield torch.Size((62, 3, 2, 2)), 2, False
    yield torch.Size((64, 3, 2, 2)), 2, False  # a panel per group
    yield torch.Size((8, 2, 3)), 8, False
    yield torch.Size((8, 0, 3, 3)), 2, False
    yield torch.Size((0, 3, 3, 3)), 2, False
    yield torch.Size((0, 3, 3, 3)), 1, False
    yield torch.Size((4, 0, 3, 3)), 1, False
    yield torch.Size((70, 40, 3, 3)), 1, False
    yield torch.Size((40, 70, 2, 2)), 1, True
    for _ in range(60):
        groups = generator.randint(1, 6)
        kernel = [generator.randint(1, 4) for _ in range(generator.randint(1, 3))]
        yield torch.Size((groups * generator.randint(1, 40), generator.randint(1, 40), *kernel)), groups, False
        yield torch.Size((groups * generator.randint(1, 40), generator.randint(1, 40), *kernel)), groups, True


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conv(kernel_driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(6)
    for sizes, groups, transposed in convolutions(generator):
        weight = arrange(generator, bits(sizes, dtype))
        [got] = kernel_driver("pack_conv", [weight], [groups, transposed], threads=generator.randint(1, 3))
        assert_same_bits(got, pack_conv(weight, groups, transposed))


def test_channels_last_weight(kernel_driver: Driver) -> None:
    weight = torch.randn(40, 37, 3, 3).to(memory_format=torch.channels_last)
    [got] = kernel_driver("pack_conv", [weight], [1, False])
    assert_same_bits(got, pack_conv(weight, 1, False))


def test_refusals(kernel_driver: Driver) -> None:
    with pytest.raises(OperatorError, match="pack_linear: the weight has rank 3, not 2"):
        kernel_driver("pack_linear", [torch.zeros(2, 3, 4)])
    with pytest.raises(OperatorError, match="pack_linear does not support complex128"):
        kernel_driver("pack_linear", [torch.zeros(2, 3, dtype=torch.complex128)])
    with pytest.raises(OperatorError, match="pack_conv: the weight has rank 2, not 3 to 5"):
        kernel_driver("pack_conv", [torch.zeros(2, 3)], [1, False])
    with pytest.raises(OperatorError, match="pack_conv: 5 channels are not divisible into 2 groups"):
        kernel_driver("pack_conv", [torch.zeros(5, 3, 1)], [2, False])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_operators_keep_to_their_contract(dtype: torch.dtype) -> None:
    """Schema, fake sizes and strides (symbolic ones too), no aliasing."""
    for sizes in [(40, 7), (1, 1), (0, 5), (5, 0)]:
        torch.library.opcheck(ops.pack_linear, (torch.randn(sizes, dtype=dtype),))
        torch.library.opcheck(ops.pack_linear, (torch.randn(sizes[::-1], dtype=dtype).t(),))
    for weight_sizes, groups, transposed in [
        ((8, 1, 1, 1), 8, False),  # torch's packing of it is a view
        ((8, 1, 3), 8, False),
        ((8, 3, 3, 3), 2, False),
        ((64, 3, 3, 3), 2, False),
        ((8, 3, 3, 3), 2, True),
        ((0, 3, 3), 1, False),
    ]:
        torch.library.opcheck(ops.pack_conv, (torch.randn(weight_sizes, dtype=dtype), groups, transposed))
