"""Scatter and its reductions, against torch: values, dtypes, and the strides that generated code counts on."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import REALS, arrange, assert_same, aten, finite
from tests.module_ops.harness import Driver, OperatorError

pytestmark = pytest.mark.torch


def scatter_case(
    generator: random.Random, dtype: torch.dtype, *, unique: bool
) -> tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]:
    """self, dim, index, src. With `unique` no slice has an index twice."""
    shape = next(s for s in iter(lambda: [generator.randint(1, 5) for _ in range(generator.randint(0, 4))], None))
    dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
    index_shape = [generator.randint(1, n) for n in shape]
    if not shape:
        return finite(generator, [], dtype), dim, torch.tensor(0), finite(generator, [], dtype)
    if not unique:
        index_shape[dim] = generator.randint(1, 8)
    index = torch.rand([n if d != dim % len(shape) else shape[d] for d, n in enumerate(index_shape)]).argsort(dim)
    index = index.narrow(dim, 0, index_shape[dim]) if unique else torch.randint(0, shape[dim], index_shape)
    source_shape = [n + generator.randint(0, 2) for n in index_shape]
    index = index.to(generator.choice([torch.int64, torch.int32]))
    if not unique:
        index = arrange(generator, index)
    return (
        arrange(generator, finite(generator, shape, dtype)),
        dim,
        index,
        arrange(generator, finite(generator, source_shape, dtype)),
    )


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_scatter(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(12)
    for _ in range(60):
        x, dim, index, source = scatter_case(generator, dtype, unique=True)
        want = lambda t, d, i, s: t.scatter(d, i.long(), s)  # noqa: E731
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        assert_same(driver("scatter_src", [out, x, index, source], [dim]), want, x, dim, index, source, fake=False)
        inplace = x.clone(memory_format=torch.contiguous_format)
        driver("scatter_value", [inplace, inplace, index], [dim], real=1.0)
        assert_same([inplace], lambda t, d, i: t.scatter(d, i.long(), 1.0), x, dim, index, fake=False)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8], ids=str
)
def test_scatter_reduce(driver: Driver, dtype: torch.dtype, reduce: str) -> None:
    generator = random.Random(13)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01, torch.float64: 1e-12}.get(dtype, 0.0)
    for _ in range(60):
        x, dim, index, source = scatter_case(generator, dtype, unique=False)
        if dtype.is_floating_point and generator.random() < 0.3 and source.dim() and source.is_contiguous():
            source.view(-1)[0] = float("nan")
        for include_self in (True, False):
            out = torch.empty_like(x, memory_format=torch.contiguous_format)
            got = driver("scatter_reduce", [out, x, index, source], [dim, include_self], text=reduce)
            want = lambda t, d, i, s, n=include_self: t.scatter_reduce(d, i.long(), s, reduce, include_self=n)  # noqa: E731
            assert_same(got, want, x, dim, index, source, tolerance=tolerance, fake=False)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(driver: Driver, reduce: str) -> None:
    generator = random.Random(14)
    for _ in range(60):
        shape = [generator.randint(1, 5) for _ in range(generator.randint(1, 3))]
        x = arrange(generator, finite(generator, shape, torch.float32))
        dim = generator.randrange(-len(shape), len(shape))
        count = generator.randint(1, 6)
        index = torch.randint(0, shape[dim], (count,))
        shape[dim] = count
        source = arrange(generator, finite(generator, shape, torch.float32))
        for include_self in (True, False):
            got = driver("index_reduce", [x, index, source], [dim, include_self], text=reduce)
            want = lambda t, d, i, s, n=include_self: aten.index_reduce(t, d, i, s, reduce, include_self=n)  # noqa: E731
            assert_same(got, want, x, dim, index, source, tolerance=1e-5)


def test_scatter_out_of_range(driver: Driver) -> None:
    x, source = torch.zeros(10, 3), torch.ones(2, 3)
    for bad in (12, -1):
        index = torch.tensor([[0, 1, 2], [3, bad, 4]])
        for name, text in (("scatter_src", ""), ("scatter_reduce", "sum")):
            inplace = x.clone()
            with pytest.raises(OperatorError, match=f"^index {bad} is out of bounds for dimension 0 with size 10$"):
                driver(name, [inplace, inplace, index, source], [0, 1], text=text)
            assert torch.equal(inplace, x), "written before the indices were checked"
    with pytest.raises(OperatorError, match="no larger than src"):
        driver("scatter_src", [x, x, torch.zeros(3, 3, dtype=torch.int64), source], [0])
