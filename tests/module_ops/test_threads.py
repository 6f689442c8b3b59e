"""Sizes that spread over threads, against torch: values, dtypes, and the strides that generated code counts on."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import assert_same, aten, finite
from tests.module_ops.harness import Driver

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("threads", [1, 3])
def test_big(driver: Driver, threads: int) -> None:
    generator = random.Random(15)
    x = finite(generator, [64, 40, 120], torch.float32)
    for dim in (0, 1, 2):
        assert_same(driver("cumsum", [x], [dim], threads=threads), aten.cumsum, x, dim)
        assert_same(driver("cummax", [x], [dim], threads=threads), aten.cummax, x, dim)
        assert_same(driver("sort_stable", [x], [dim, 1], threads=threads),
                    lambda t, d: aten.sort.stable(t, stable=True, dim=d, descending=True), x, dim)  # fmt: skip
        assert_same(
            driver("topk", [x], [5, dim, 1, 1], threads=threads)[:1], lambda t, d: aten.topk(t, 5, d)[0], x, dim
        )
        index = torch.randint(0, x.shape[dim], x.shape)
        want = lambda t, d, i: t.scatter_reduce(d, i, t, "sum")  # noqa: E731
        got = driver("scatter_reduce", [torch.empty_like(x), x, index, x], [dim, 1], text="sum", threads=threads)
        assert_same(got, want, x, dim, index, tolerance=1e-4, fake=False)
        assert torch.equal(
            got[0], driver("scatter_reduce", [torch.empty_like(x), x, index, x], [dim, 1], text="sum")[0]
        )
    rows = torch.randint(-64, 64, (3000,))
    assert_same(driver("index", [x, rows], threads=threads), aten.index.Tensor, x, [rows])
    columns = torch.randint(-40, 40, (3000,))
    values = finite(generator, [64, 3000, 120], torch.float32)
    assert_same(driver("index_put", [x, values, None, columns], [1], threads=threads),
                lambda t, i, v: aten.index_put(t, i, v, True), x, [None, columns], values, tolerance=1e-4)  # fmt: skip
    edges = torch.linspace(-3, 3, 1000)
    assert_same(driver("bucketize", [x, edges], [0, 0], threads=threads), aten.bucketize.Tensor, x, edges)
    mask = x > 0
    assert_same(driver("index", [x, mask], threads=threads), aten.index.Tensor, x, [mask], fake=False)
