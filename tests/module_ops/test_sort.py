"""Sorting, top-k and binary search, against torch: values, dtypes, and the strides that generated code counts on."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import REALS, arrange, assert_same, aten, finite, make, shapes
from tests.module_ops.harness import Driver, OperatorError

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_stable_sort(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(4)
    for shape in [*shapes(generator, 20), [3, 700], [1500]]:
        x = arrange(generator, make(generator, shape, dtype, ties=generator.random() < 0.5))
        dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
        for descending in (False, True):
            want = lambda t, d=dim, r=descending: aten.sort.stable(t, stable=True, dim=d, descending=r)  # noqa: E731
            assert_same(driver("sort_stable", [x], [dim, descending]), want, x)
            assert_same(driver("sort", [x], [dim, descending]), want, x)


@pytest.mark.parametrize("dtype", [d for d in REALS if d != torch.bool], ids=str)
def test_topk(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(5)
    for shape in [*shapes(generator, 30), [2, 900]]:
        x = arrange(generator, make(generator, shape, dtype))
        rank = max(len(shape), 1)
        dim = generator.randrange(-rank, rank)
        size = x.shape[dim] if shape else 1
        k = generator.choice([0, size, generator.randint(0, size), min(size, 3)])
        for largest in (False, True):
            values, indices = driver("topk", [x], [k, dim, largest, 1])
            assert_same([values], lambda t, k=k, d=dim, g=largest: aten.topk(t, k, d, g, True)[0], x)
            assert indices.dtype == torch.int64
            # Which of equal elements is named is left open; that each is named once is not.
            if shape:
                torch.testing.assert_close(x.gather(dim, indices), values, rtol=0, atol=0, equal_nan=True)
                places = indices.sort(dim).values
                assert bool((places.diff(dim=dim) != 0).all())
            unsorted, _ = driver("topk", [x], [k, dim, largest, 0])
            order = lambda t, d=dim: t.sort(d).values  # noqa: E731
            torch.testing.assert_close(order(unsorted), order(values), rtol=0, atol=0, equal_nan=True)
    with pytest.raises(OperatorError, match="k out of range"):
        driver("topk", [torch.zeros(3)], [4, 0, 1, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_kthvalue(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(6)
    for shape in shapes(generator, 30):
        if 0 in shape:
            continue
        x = arrange(generator, make(generator, shape, dtype))
        dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
        k = generator.randint(1, x.shape[dim] if shape else 1)
        for keepdim in (False, True):
            values, indices = driver("kthvalue", [x], [k, dim, keepdim])
            assert_same([values], lambda t, k=k, d=dim, m=keepdim: aten.kthvalue(t, k, d, m)[0], x)
            if shape:
                at = indices if keepdim else indices.unsqueeze(dim)
                picked = x.gather(dim, at)
                torch.testing.assert_close(
                    picked if keepdim else picked.squeeze(dim), values, rtol=0, atol=0, equal_nan=True
                )


def test_searchsorted(driver: Driver) -> None:
    generator = random.Random(7)
    for _ in range(150):
        lead = [generator.randint(1, 3) for _ in range(generator.randint(0, 2))]
        dtype = generator.choice([torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16])
        edges = finite(generator, [*lead, generator.randint(0, 9)], dtype)
        sorter = None
        if generator.random() < 0.3:
            sorter = edges.argsort(-1)
        else:
            edges = edges.sort(-1).values
        values = arrange(
            generator, make(generator, [*lead, generator.randint(0, 6)], generator.choice([dtype, torch.float32]))
        )
        right = generator.random() < 0.5
        side = generator.choice(["", "right"] if right else ["", "left"])
        narrow = generator.random() < 0.3
        want = lambda e, v, s, r=right, d=side, n=narrow: aten.searchsorted.Tensor(  # noqa: E731
            e, v, out_int32=n, right=r, side=d or None, sorter=s
        )
        assert_same(
            driver("searchsorted", [edges, values, sorter], [narrow, right], text=side), want, edges, values, sorter
        )
        if not lead and sorter is None:
            assert_same(
                driver("bucketize", [values, edges], [narrow, right]),
                lambda v, e, r=right, n=narrow: aten.bucketize.Tensor(v, e, out_int32=n, right=r),
                values,
                edges,
            )
    edges = torch.tensor([1, 3, 5])
    for value in (0.5, 3.0, 3.5, 9.0):
        got = driver("searchsorted_scalar", [edges], [1], real=value)[0]
        assert got.item() == torch.searchsorted(edges, value, right=True).item()
