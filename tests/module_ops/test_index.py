"""Advanced indexing, masks and places, against torch: values, dtypes, and the strides that generated code counts on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from tests.module_ops.cases import REALS, arrange, assert_same, aten, finite, make, shapes
from tests.module_ops.harness import Driver, OperatorError

pytestmark = pytest.mark.torch


def random_indices(generator: random.Random, shape: Sequence[int], *, unique: bool) -> list[torch.Tensor | None]:
    """Index tensors that broadcast, masks and gaps for a tensor of this shape. With `unique` none is named twice."""
    indices: list[torch.Tensor | None] = []
    common = [generator.randint(1, 3) for _ in range(generator.randint(0, 2))]
    d = 0
    while d < len(shape):
        choice = generator.random()
        if choice < 0.35:
            indices.append(None)
            d += 1
        elif choice < 0.5 and not any(i is not None for i in indices):
            span = generator.randint(1, min(2, len(shape) - d))
            mask = torch.rand(tuple(shape[d : d + span])) < 0.5
            indices.append(arrange(generator, mask) if not unique else mask)
            return indices  # a mask's count does not broadcast with others
        else:
            size = shape[d]
            dtype = generator.choice([torch.int64, torch.int64, torch.int32])
            if unique:
                indices.append(
                    torch.randperm(size)[: generator.randint(1, size)].to(dtype) - generator.choice([0, size])
                )
                return indices
            sizes = [n if generator.random() < 0.7 else 1 for n in common][generator.randint(0, len(common)) :]
            indices.append(arrange(generator, torch.randint(-size, size, sizes, dtype=dtype)))
            d += 1
    return indices


def is_usable(indices: list[torch.Tensor | None]) -> bool:
    return any(i is not None for i in indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex128], ids=str)
def test_index(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(8)
    done = 0
    while done < 150:
        shape = [generator.randint(1, 5) for _ in range(generator.randint(1, 4))]
        x = make(generator, shape, torch.float64 if dtype.is_complex else dtype)
        x = arrange(generator, x.to(dtype))
        indices = random_indices(generator, shape, unique=False)
        if not is_usable(indices):
            continue
        # Fake tensors cannot know what a mask counts, and get indices of rank 0 wrong beside others (torch 2.13).
        fake = not any(i is not None and (i.dtype == torch.bool or i.dim() == 0) for i in indices)
        assert_same(driver("index", [x, *indices]), aten.index.Tensor, x, indices, fake=fake)
        done += 1


def test_index_of_empty_tensors(driver: Driver) -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    for x in (torch.zeros(3, 0, 2), torch.randn(3, 4)):
        assert_same(driver("index", [x, empty]), aten.index.Tensor, x, [empty])
        assert_same(driver("index", [x, None, empty]), aten.index.Tensor, x, [None, empty])
    x, mask = torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.bool)
    assert_same(driver("index", [x, mask]), aten.index.Tensor, x, [mask], fake=False)


def test_index_out_of_range(driver: Driver) -> None:
    x = torch.zeros(10, 3)
    for bad, text in ((12, "index 12"), (-11, "index -11")):
        with pytest.raises(OperatorError, match=f"^{text} is out of bounds for dimension 0 with size 10$"):
            driver("index", [x, torch.tensor([1, bad, 2])])
        with pytest.raises(OperatorError, match=f"^{text} is out of bounds for dimension 0 with size 10$"):
            driver("index_put", [x, torch.ones(()), torch.tensor([1, bad, 2])], [0])
    with pytest.raises(OperatorError, match="index 3 is out of bounds for dimension 1 with size 3"):
        driver("index", [x, None, torch.tensor([3])])
    with pytest.raises(OperatorError, match="too many indices"):
        driver("index", [x, torch.tensor([0]), torch.tensor([0]), torch.tensor([0])])
    with pytest.raises(OperatorError, match="mask"):
        driver("index", [x, torch.ones(9, dtype=torch.bool)])


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_index_put(driver: Driver, dtype: torch.dtype, accumulate: bool) -> None:
    generator = random.Random(9)
    done = 0
    while done < 120:
        shape = [generator.randint(1, 5) for _ in range(generator.randint(1, 4))]
        x = arrange(generator, finite(generator, shape, dtype))
        # Without accumulation torch leaves open which of equal indices wins.
        indices = random_indices(generator, shape, unique=not accumulate)
        if not is_usable(indices):
            continue
        target = aten.index.Tensor(x, indices).shape
        cut = generator.randint(0, len(target))
        values = finite(generator, [n if generator.random() < 0.7 else 1 for n in target[cut:]], dtype)
        values = arrange(generator, values)
        fake = not any(i is not None and i.dtype == torch.bool for i in indices)
        want = lambda t, i, v, a=accumulate: aten.index_put(t, i, v, a)  # noqa: E731
        got = driver("index_put", [x, values, *indices], [accumulate])
        # bf16 sums are rounded at each step, in an order that torch leaves open.
        tolerance = {torch.bfloat16: 0.05, torch.float32: 1e-5}.get(dtype, 0.0) if accumulate else 0.0
        assert_same(got, want, x, indices, values, tolerance=tolerance, fake=fake)
        inplace = x.clone(memory_format=torch.contiguous_format)
        assert_same(driver("index_put_out", [inplace, values, *indices], [accumulate]), want, x, indices, values,
                    tolerance=tolerance, fake=False)  # fmt: skip
        assert torch.equal(inplace, got[0])
        done += 1


def test_last_of_equal_indices_wins(driver: Driver) -> None:
    index = torch.tensor([2, 0, 2, 2])
    got = driver("index_put", [torch.zeros(3), torch.tensor([1.0, 2.0, 3.0, 4.0]), index], [0])[0]
    assert got.tolist() == [2.0, 0.0, 4.0]


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_nonzero(driver: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(10)
    for shape in shapes(generator, 20):
        x = arrange(generator, make(generator, shape, dtype, ties=True))
        got = driver("nonzero", [x])
        assert_same(got, aten.nonzero, x, fake=False)
        if got[0].numel() and got[0].shape[0] > 1:
            assert got[0].stride()[0] == aten.nonzero(x).stride()[0]
        for size in (0, 2, 9):
            assert_same(
                driver("nonzero_static", [x], [size, -7]),
                lambda t, n=size: aten.nonzero_static(t, size=n, fill_value=-7),
                x,
            )


def test_masked_select_and_scatter(driver: Driver) -> None:
    generator = random.Random(11)
    for shape in shapes(generator, 60):
        x = arrange(generator, make(generator, shape, generator.choice(REALS)))
        mask_shape = [n if generator.random() < 0.7 else 1 for n in shape][generator.randint(0, len(shape)) :]
        mask = arrange(
            generator, torch.rand(tuple(mask_shape)) < 0.5 if mask_shape else torch.tensor(generator.random() < 0.5)
        )
        assert_same(driver("masked_select", [x, mask]), aten.masked_select, x, mask, fake=False)
        source = make(generator, [x.numel() + 2], x.dtype)
        assert_same(driver("masked_scatter", [x, mask, source]), aten.masked_scatter, x, mask, source)
    with pytest.raises(OperatorError, match="source has 1 elements"):
        driver("masked_scatter", [torch.zeros(3), torch.ones(3, dtype=torch.bool), torch.zeros(1)])


def test_repeat_interleave(driver: Driver) -> None:
    for dtype in (torch.int64, torch.int32):
        for repeats in ([], [0], [2, 0, 3], [1] * 7):
            times = torch.tensor(repeats, dtype=dtype)
            assert_same(driver("repeat_interleave", [times]), aten.repeat_interleave.Tensor, times, fake=False)
            assert_same(
                driver("repeat_interleave", [times], [sum(repeats)]), aten.repeat_interleave.Tensor, times, fake=False
            )
    with pytest.raises(OperatorError, match="negative"):
        driver("repeat_interleave", [torch.tensor([1, -1])])
    with pytest.raises(OperatorError, match="required size"):
        driver("repeat_interleave", [torch.tensor([1, 1])], [3])
