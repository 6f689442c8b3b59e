"""Random tensors in all memory layouts, and the comparison with torch that the operators' tests share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
REALS = [*FLOATS, *INTEGERS, torch.bool]
aten = torch.ops.aten


def make(generator: random.Random, sizes: Sequence[int], dtype: torch.dtype, *, ties: bool = False) -> torch.Tensor:
    """Random elements; floats with NaN, infinities and both zeros unless `ties`, which asks for few small integers."""
    torch.manual_seed(generator.randrange(1 << 30))
    if dtype == torch.bool:
        return torch.rand(tuple(sizes)) < 0.5
    if dtype in INTEGERS:
        return torch.randint(0 if dtype == torch.uint8 else -6, 7, tuple(sizes), dtype=dtype)
    if ties:
        return torch.randint(-4, 5, tuple(sizes)).to(dtype)
    values = torch.randn(tuple(sizes), dtype=torch.float64)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0], dtype=torch.float64)
    where = torch.rand(tuple(sizes)) < 0.15
    return torch.where(where, special[torch.randint(0, 6, tuple(sizes))], values).to(dtype)


def finite(generator: random.Random, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    x = make(generator, sizes, dtype)
    return x.nan_to_num(0.5, 2.0, -2.0) if dtype.is_floating_point else x


def arrange(generator: random.Random, x: torch.Tensor) -> torch.Tensor:
    """The same elements in another memory layout: permuted, strided with holes, or expanded."""
    choice = generator.randrange(5)
    if choice == 0 or x.dim() == 0:
        return x
    if choice == 1:
        order = generator.sample(range(x.dim()), x.dim())
        back = [order.index(d) for d in range(x.dim())]
        return x.permute(order).contiguous().permute(back)
    if choice == 2:
        holes = torch.zeros([2 * n + 1 for n in x.shape], dtype=x.dtype)
        view = holes[tuple(slice(1, 1 + 2 * n, 2) for n in x.shape)]
        return view.copy_(x)
    if choice == 3:
        d = generator.randrange(x.dim())
        return x.narrow(d, 0, 1).expand(x.shape) if x.shape[d] else x
    return x.flip(generator.randrange(x.dim()))


def shapes(generator: random.Random, count: int) -> Iterator[list[int]]:
    """Small shapes of rank 0 to 4, some with sizes 0 and 1."""
    yield from ([], [1], [0], [7], [3, 0, 2], [1, 5, 1])
    for _ in range(count):
        yield [
            generator.choice([1, 2, 3, 4, 5, 6, 0 if generator.random() < 0.1 else 3])
            for _ in range(generator.randint(1, 4))
        ]


def assert_same(
    got: Sequence[torch.Tensor],
    operator: Callable[..., object],
    *args: object,
    tolerance: float = 0.0,
    fake: bool = True,
) -> None:
    """`got` is what `operator(*args)` gives in eager; its strides are those that the compiler was told of."""

    def listed(result: object) -> list[torch.Tensor]:
        return [result] if isinstance(result, torch.Tensor) else list(result)  # type: ignore[call-overload]

    want = listed(operator(*args))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)
    if fake:
        with FakeTensorMode() as mode:
            convert = lambda a: mode.from_tensor(a) if isinstance(a, torch.Tensor) else a  # noqa: E731
            lists = [[convert(i) for i in a] if isinstance(a, list) else convert(a) for a in args]
            told = listed(operator(*lists))
        for g, t in zip(got, told, strict=True):
            if g.numel() > 0:
                assert [s for s, n in zip(g.stride(), g.shape, strict=True) if n > 1] == [
                    s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1
                ]
