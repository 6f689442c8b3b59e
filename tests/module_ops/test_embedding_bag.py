"""Embedding bags for training: all that the backward reads, and both gradients."""

from __future__ import annotations

import random

import pytest
import torch

from aotpack.export.ops.embedding_bag import embedding_bag_full
from tests.module_ops.cases import FLOATS, arrange, aten
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

pytestmark = pytest.mark.torch

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(scope="module")
def bags(make_driver: MakeDriver) -> Driver:
    return make_driver("embedding_bag_driver", ("embedding_bag_grad",))


def close(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.shape == wanted.shape
    torch.testing.assert_close(got.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_and_gradients(bags: Driver, mode: int, dtype: torch.dtype) -> None:
    generator = random.Random(mode)
    for _ in range(30):
        rows, dim, count = generator.randint(1, 9), generator.randint(1, 7), generator.choice([0, 1, 5, 12])
        include_last = generator.random() < 0.5
        starts = sorted([0, *(generator.randint(0, count) for _ in range(generator.randint(0, 4)))])
        offsets = torch.tensor([*starts, count] if include_last else starts)
        indices = torch.randint(0, rows, (count,))
        # In double, so that what eager rounds on its way does not matter.
        weight = torch.randn(rows, dim).to(dtype)
        factors = torch.randn(count).to(dtype) if mode == 0 and generator.random() < 0.5 else None
        padding = generator.choice([-1, generator.randrange(rows)])
        wide_factors = None if factors is None else factors.double()
        wanted = embedding_bag_full(weight.double(), indices, offsets, mode, wide_factors, include_last, padding)
        kinds = [t.to(generator.choice([torch.int64, torch.int32])) for t in (indices, offsets)]
        placed = [arrange(generator, weight), arrange(generator, kinds[0].clone()) if count < 2 else kinds[0], kinds[1]]
        got = bags("full", [*placed, factors], [mode, include_last, padding], threads=2)
        assert got[0].dtype == dtype
        if placed[0].equal(weight):
            close(got[0], wanted[0], dtype)
        for actual, expected in zip(got[1:3], wanted[1:3], strict=True):
            assert actual.dtype == kinds[1].dtype
            assert torch.equal(actual.long(), expected)
        if mode == 2 and placed[0].equal(weight):
            assert torch.equal(got[3].long(), wanted[3])
        gradient = arrange(generator, torch.randn(wanted[0].shape).to(dtype))
        _, bag_of, sizes, sources = wanted
        by_frequency = mode != 2 and generator.random() < 0.5
        # Eager keeps the numbers of a maximum's rows, and the bags' sizes elsewhere.
        rest = (bag_of, sizes, sources if mode == 2 else sizes)
        options = (rows, by_frequency, mode)
        expected = aten._embedding_bag_dense_backward(
            gradient.double(), indices, *rest, *options, wide_factors, padding
        )
        (actual,) = bags("dense_backward", [gradient, indices, *rest, factors], [*options, padding], threads=2)
        assert actual.dtype == dtype
        close(actual, expected, dtype)
        if mode == 0:
            tensors = [gradient, weight, indices, offsets, bag_of]
            wide = [t.double() if t.is_floating_point() else t for t in tensors]
            expected = aten._embedding_bag_per_sample_weights_backward(*wide, 0, padding)
            (actual,) = bags("per_sample_weights_backward", tensors, [padding], threads=2)
            close(actual, expected, dtype)
            tensors[4] = bag_of[:0]
            (actual,) = bags("per_sample_weights_backward", tensors, [padding], threads=2)
            close(actual, expected, dtype)


def test_bad_indices_and_offsets(bags: Driver) -> None:
    weight, indices = torch.randn(4, 3), torch.tensor([0, 3, 1])
    for bad in (4, -1):
        with pytest.raises(OperatorError, match="out of range for a table of 4 rows"):
            bags("full", [weight, torch.tensor([0, bad]), torch.tensor([0])], [0, 0, -1])
    for offsets in ([1], [0, 2, 1], [0, 4], [-1]):
        with pytest.raises(OperatorError, match="offsets must begin with 0"):
            bags("full", [weight, indices, torch.tensor(offsets)], [0, 0, -1])
    sizes = torch.tensor([3])
    with pytest.raises(OperatorError, match="offset2bag"):
        bags("dense_backward", [torch.randn(1, 3), indices, torch.tensor([0, 1, 0]), sizes, sizes], [4, 0, 0, -1])
