"""Operands whose elements lie more than 2^31 elements apart, in memory that is reserved but for the pages in use."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.module_ops.harness import Driver

pytestmark = pytest.mark.torch

FAR = 2**31 + 64
_NORESERVE = 0x4000

Far = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def far() -> Far:
    """Copies a matrix of three rows to where its rows are FAR elements apart."""

    def spread(x: torch.Tensor) -> torch.Tensor:
        size = (2 * FAR + x.shape[1]) * x.element_size()
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        except (OSError, ValueError):
            pytest.skip(f"no address space for {size} bytes")
        result = torch.frombuffer(memory, dtype=x.dtype).as_strided(x.shape, (FAR, 1))
        return result.copy_(x)

    return spread


def matrix(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(-9, 9, (3, 5)).to(dtype)


DTYPES = [torch.int8, torch.float32]

READS: list[tuple[str, Sequence[int]]] = [
    ("cumsum", [0]),
    ("cumprod", [1]),
    ("cummax", [0]),
    ("cummin", [1]),
    ("sort_stable", [0, 1]),
    ("sort", [1, 0]),
    ("topk", [2, 0, 1, 1]),
    ("kthvalue", [2, 0, 0]),
    ("nonzero", []),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "ints"), READS, ids=[name for name, _ in READS])
def test_what_is_read(driver: Driver, far: Far, name: str, ints: Sequence[int], dtype: torch.dtype) -> None:
    x = matrix(dtype)
    equal(driver(name, [far(x)], ints), driver(name, [x], ints))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indices_and_masks(driver: Driver, far: Far, dtype: torch.dtype) -> None:
    x = matrix(dtype)
    rows = torch.tensor([2, 0, 2])
    mask = x > 0
    equal(driver("index", [far(x), rows]), [x[rows]])
    equal(driver("index", [far(x), rows, far(torch.tensor([[4], [0], [1]]))[:, 0]]), [x[rows, torch.tensor([4, 0, 1])]])
    equal(driver("masked_select", [far(x), far(mask)]), [x[mask]])
    source = matrix(dtype) * 2
    equal(driver("masked_scatter", [far(x), far(mask), far(source)]), [x.masked_scatter(mask, source)])
    boundaries = x.sort(1).values
    equal(driver("searchsorted", [far(boundaries), far(x), None], [0, 0]), [torch.searchsorted(boundaries, x)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_written(driver: Driver, far: Far, dtype: torch.dtype) -> None:
    x, source = matrix(dtype), matrix(dtype) + 1
    rows = torch.tensor([2, 0, 2])
    for accumulate in (0, 1):
        out = far(x)
        driver("index_put_out", [out, far(source), rows], [accumulate], copied=False)
        expected = x.clone()
        for row, values in zip(rows.tolist(), source, strict=True):
            expected[row] = expected[row] + values if accumulate else values
        equal([out.contiguous()], [expected])
    index = torch.tensor([[2, 0, 1, 2, 0], [1, 1, 2, 0, 1], [0, 2, 0, 1, 2]])
    out = far(x)
    driver("scatter_src", [out, far(x), far(index), far(source)], [0], copied=False)
    equal([out.contiguous()], [x.scatter(0, index, source)])
    driver("scatter_value", [out, out, far(index[:, :2])], [1], real=1.0, copied=False)
    equal([out.contiguous()], [x.scatter(0, index, source).scatter(1, index[:, :2], 1)])
    out = far(x)
    driver("scatter_reduce", [out, far(x), far(index), far(source)], [0, 1], text="sum", copied=False)
    equal([out.contiguous()], [x.scatter_reduce(0, index, source, "sum")])


def equal(got: Sequence[Any], wanted: Sequence[Any]) -> None:
    assert len(got) == len(wanted)
    for actual, expected in zip(got, wanted, strict=True):
        torch.testing.assert_close(actual.contiguous(), expected.contiguous(), rtol=0, atol=0)
