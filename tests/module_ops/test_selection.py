"""Modes, histograms, the order of rows and functions of two integers, against torch."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import INTEGERS, REALS, arrange, assert_same, aten, finite, make, shapes
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

pytestmark = pytest.mark.torch


@pytest.fixture(scope="session")
def selection(make_driver: MakeDriver) -> Driver:
    groups = ("mode", "histogram", "lexsort", "integers", "sort")
    return make_driver("selection_driver", groups)


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_mode(selection: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(1)
    for shape in [*shapes(generator, 30), [300], [40, 50], [3, 40, 20]]:
        x = arrange(generator, make(generator, shape, dtype, ties=True))
        dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
        if 0 in shape:
            if x.shape[dim] != 0:
                assert [t.numel() for t in selection("mode", [x], [dim, 1])] == [0, 0]
            continue
        for keepdim in (False, True):
            got = selection("mode", [x], [dim, keepdim], threads=generator.choice([1, 3]))
            # All of it: of equal values the same one is named.
            assert_same(got, lambda t, d=dim, k=keepdim: aten.mode(t, d, k), x)


def test_mode_of_missing_values(selection: Driver) -> None:
    nan = float("nan")
    values, places = selection("mode", [torch.tensor([[nan, 2.0, nan, 2.0], [nan, 3.0, nan, 1.0]])], [1, 0])
    assert values.tolist() == [2.0, 1.0]
    assert places.tolist() == [3, 3]
    assert selection("mode", [torch.tensor([nan, nan])], [0, 0])[0].isnan()
    with pytest.raises(OperatorError, match="non-zero size"):
        selection("mode", [torch.zeros(2, 0)], [1, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_histc(selection: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(2)
    for shape in [*shapes(generator, 20), [200]]:
        x = arrange(generator, finite(generator, shape, dtype))
        for bins, low, high in ((1, 0, 0), (7, 0, 0), (5, -2, 1), (4, 1, 1)):
            if low == high and x.isinf().any():
                continue
            assert_same(selection("histc", [x], [bins, low, high]), lambda t, a=(bins, low, high): aten.histc(t, *a), x)
    x = torch.tensor([0.5, float("nan"), 2.0, -1.0]).to(dtype)
    assert selection("histc", [x], [3, -1, 2])[0].tolist() == [1.0, 1.0, 1.0]
    for arguments, message in (
        ([3, 0, 0], "not finite"),
        ([3, 2, 1], "max must be larger"),
        ([0, 0, 1], "bins must be"),
    ):
        with pytest.raises(OperatorError, match=message):
            selection("histc", [x], arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histograms_of_several_dims(selection: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(3)
    tolerance = 1e-6
    for _ in range(40):
        points, dims = generator.choice([0, 1, 5, 60]), generator.randint(1, 3)
        x = arrange(generator, finite(generator, [points, dims], dtype)).clamp(-3, 3)
        bins = [generator.randint(1, 5) for _ in range(dims)]
        bounds = generator.choice([[], [b for _ in range(dims) for b in (-1, 2)]])
        (edges,) = selection("histogram_edges", [x], [dims, *bins, *bounds])
        want = aten._histogramdd_bin_edges(x, bins, range=[float(b) for b in bounds] or None)
        torch.testing.assert_close(edges, torch.cat(want), rtol=tolerance, atol=tolerance)
        weight = arrange(generator, finite(generator, [points], dtype)) if generator.random() < 0.5 else None
        (counts,) = selection("histogram_counts", [x, edges, weight], bins)
        parts = list(edges.split([b + 1 for b in bins]))
        want = aten._histogramdd_from_bin_tensors(x, parts, weight=weight)
        torch.testing.assert_close(counts, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    for data, bounds, message in (
        ([[float("inf")]], [], "not finite"),
        ([[float("nan")]], [], "not finite"),
        ([[1.0]], [2, 1], "min should not exceed max"),
    ):
        with pytest.raises(OperatorError, match=message):
            selection("histogram_edges", [torch.tensor(data, dtype=dtype)], [1, 3, *bounds])


def test_the_order_of_rows(selection: Driver) -> None:
    generator = random.Random(4)
    for _ in range(80):
        rows, columns = generator.choice([0, 1, 4, 50]), generator.choice([0, 1, 3, 6])
        dtype = generator.choice(REALS)
        x = arrange(generator, make(generator, [rows, columns], dtype, ties=generator.random() < 0.7))
        (order,) = selection("sort_rows", [x])
        want = torch.arange(rows)
        for column in reversed(range(columns)):
            want = want[x[want, column].argsort(stable=True)]
        assert torch.equal(order, want)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_two_integers(selection: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(5)
    bounds = torch.iinfo(dtype)
    for shape in shapes(generator, 20):
        a, b = (arrange(generator, make(generator, shape, dtype)) for _ in range(2))
        assert_same(selection("integer_binary", [a, b], [0]), aten.gcd, a, b, fake=False)
        assert_same(selection("integer_binary", [a, b], [1]), aten.pow, a, b, fake=False)
    corners = torch.tensor([bounds.min, bounds.max, 0, 1, -1 % (bounds.max + 1), 2], dtype=dtype)
    a, b = (t.flatten() for t in torch.meshgrid(corners, corners, indexing="ij"))
    exponents = b.clamp(max=70)
    assert_same(selection("integer_binary", [a, exponents], [1], threads=2), aten.pow, a, exponents, fake=False)
    a, b = a[a != bounds.min], b[a != bounds.min]  # eager itself divides the least number by -1
    kept = b != bounds.min if dtype != torch.uint8 else torch.ones_like(b, dtype=torch.bool)
    assert_same(selection("integer_binary", [a[kept], b[kept]], [0]), aten.gcd, a[kept], b[kept], fake=False)


@pytest.mark.parametrize("dtype", [d for d in REALS if d != torch.bool], ids=str)
def test_topk_names_the_same_of_equal_values(selection: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(6)
    for shape in ([7], [4, 30], [2, 400], [3, 5, 6]):
        x = arrange(generator, make(generator, shape, dtype, ties=generator.random() < 0.7))
        dim = generator.randrange(len(shape))
        for k in {1, x.shape[dim] // 2, x.shape[dim]}:
            for largest in (False, True):
                for ordered in (False, True):
                    got = selection("topk", [x], [k, dim, largest, ordered])
                    assert_same(got, lambda t, a=(k, dim, largest, ordered): aten.topk(t, *a), x)
