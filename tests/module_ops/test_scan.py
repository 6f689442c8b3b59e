"""Running sums and extremes, against torch: values, dtypes, and the strides that generated code counts on."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import FLOATS, REALS, arrange, assert_same, aten, make, shapes
from tests.module_ops.harness import DTYPES, Driver

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_sums_and_products(driver: Driver, name: str, dtype: torch.dtype) -> None:
    generator = random.Random(1)
    operator = getattr(aten, name)
    for shape in shapes(generator, 20):
        x = arrange(generator, make(generator, shape, dtype))
        dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
        # glibc and torch agree bit for bit: the same order of the same additions.
        assert_same(driver(name, [x], [dim]), operator, x, dim)
        wanted = generator.choice([torch.float64, torch.float32, torch.int64, torch.int32, torch.bfloat16])
        if wanted.is_floating_point or not dtype.is_floating_point:
            assert_same(
                driver(name, [x], [dim, DTYPES[wanted]]), lambda t, d, w=wanted: operator(t, d, dtype=w), x, dim
            )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_logcumsumexp(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(2)
    for shape in shapes(generator, 30):
        x = arrange(generator, make(generator, shape, dtype))
        dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
        assert_same(driver("logcumsumexp", [x], [dim]), aten.logcumsumexp, x, dim, tolerance=1e-6)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_running_extremes(driver: Driver, name: str, dtype: torch.dtype) -> None:
    generator = random.Random(3)
    for shape in shapes(generator, 20):
        x = arrange(generator, make(generator, shape, dtype, ties=generator.random() < 0.5))
        dim = generator.randrange(-max(len(shape), 1), max(len(shape), 1))
        assert_same(driver(name, [x], [dim]), getattr(aten, name), x, dim)
