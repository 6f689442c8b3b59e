"""Order statistics, sets, histograms, distances and integers through archives, against eager at other data."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn

from aotpack import Dim
from aotpack.errors import ExecutionError
from tests.export.conftest import Build, assert_close
from tests.export.operators.functions import Functions


def _same(archive: Any, model: Any, *args: Tensor, tolerance: float = 1e-5) -> None:
    got, expected = archive(*args), model(*args)
    assert list(got) == list(expected)
    for name, wanted in expected.items():
        try:
            assert_close(pytree.tree_leaves(got[name]), pytree.tree_leaves(wanted), tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


# Eager's other way is far from exact where rows are close.
DIRECT = "donot_use_mm_for_euclid_dist"
FLOATS = Functions(
    mode=lambda x, y, w: torch.mode(x.round(), 0),
    mode_kept=lambda x, y, w: torch.mode(x, -1, keepdim=True),
    histc=lambda x, y, w: torch.histc(x, 7),
    histc_of_range=lambda x, y, w: torch.histc(x, 5, -1.0, 2.0),
    histogram=lambda x, y, w: torch.histogram(x, 6, weight=x.abs(), density=True),
    histogram_of_edges=lambda x, y, w: torch.histogram(x, torch.tensor([-3.0, -1.0, 0.0, 0.25, 2.0])),
    histogramdd=lambda x, y, w: torch.histogramdd(x[:, :2], [3, 4], range=[-2.0, 2.0, -3.0, 3.0], weight=w),
    histogramdd_of_data=lambda x, y, w: torch.histogramdd(x[:, :3], [2, 3, 2]),
    cdist=lambda x, y, w: [torch.cdist(x, y, p, DIRECT) for p in (0.0, 0.5, 1.0, 2.0, 3.0, math.inf)],
    cdist_by_product=lambda x, y, w: torch.cdist(x, y + 9, compute_mode="use_mm_for_euclid_dist"),
    addbmm=lambda x, y, w: torch.addbmm(
        x[:2, :2], x.view(-1, 2, 1), y[0, :2].view(1, 1, 2).expand(x.numel() // 2, 1, 2)
    ),
    unique_dim=lambda x, y, w: [
        torch.unique(x.round(), dim=d, return_inverse=True, return_counts=True) for d in (0, -1)
    ],
    runs=lambda x, y, w: [
        torch.unique_consecutive(x.round(), dim=d, return_inverse=True, return_counts=True) for d in (0, -1, -2)
    ],
    runs_of_method=lambda x, y, w: x.sign().unique_consecutive(dim=-1),
    topk_unsorted=lambda x, y, w: torch.topk(x, 3, sorted=False),
    topk_of_ties=lambda x, y, w: torch.topk(x.round(), 3, dim=0),
    cov=lambda x, y, w: (torch.cov(x), torch.cov(x.t(), aweights=w, correction=0), torch.corrcoef(x)),
    nothing=lambda x, y, w: torch.std_mean(x[:, :0], 1),
)


def test_floats(build: Build) -> None:
    def call(n: int, m: int) -> tuple[Tensor, ...]:
        x = torch.randn(n, 4)
        x[n - 1] = x[0]
        y = torch.randn(m, 4)
        y[0] = x[0]
        return x, y, torch.rand(n)

    n, m = Dim("n", min=4, max=200), Dim("m", min=1, max=200)
    archive = build(FLOATS, call(6, 5), dynamic_shapes={"args": ({0: n}, {0: m}, {0: n})})
    for sizes in ((6, 5), (40, 1), (5, 60)):
        _same(archive, FLOATS, *call(*sizes))


def test_gradients_of_distances(build: Build) -> None:
    class Loss(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            close = [torch.cdist(x, y, p).square().sum() for p in (0.5, 1.0, 1.5, 2.0, 3.0, math.inf)]
            return sum(close, F.pdist(x, 2.0).sum() + F.pdist(y, 3.0).sum() + F.pdist(y, 1.0).exp().sum())

    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    archive = build(Loss(), (x, y), mode="joint")
    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    with torch.no_grad():
        x[1] = x[0]
    Loss()(x, y).backward()
    got = archive(x.detach(), y.detach())["input_gradients"]
    assert_close(list(got.values()), [x.grad, y.grad], 1e-5)


INTEGERS = Functions(
    bincount=lambda i, j: torch.bincount(i),
    bincount_weighted=lambda i, j: torch.bincount(i, i.float() / 3, minlength=12),
    one_hot=lambda i, j: F.one_hot(i),
    equal=lambda i, j: (torch.equal(i, j), torch.equal(i, i + 0), i.equal(j[:2])),
    allclose=lambda i, j: torch.allclose(i.float(), j + 1e-7),
    narrow=lambda i, j: (j.narrow(0, i[0] % 3, 2) * 2, torch.narrow(j, 0, -i[0] % 3 - 3, 1)),
    combinations=lambda i, j: (torch.combinations(i), torch.combinations(i, 3, with_replacement=True)),
    selected=lambda i, j: torch.masked_select(i, torch.stack([i > 1, j > 1, i < j])),
    take=lambda i, j: (i.take(torch.tensor(-2)), i.take(torch.tensor([[0, -1], [3, 2]])), i.take(j % 6)),
    pdist=lambda i, j: [F.pdist(torch.stack([i, j], 1).float(), p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)],
    gcd=lambda i, j: (torch.gcd(i * 6, j * 4), torch.lcm(i.short(), j.short() - 4)),
    power=lambda i, j: (i ** (j - 3), (j - 3).int() ** i.int(), 3**i, (-1) ** (j - 5)),
    mode=lambda i, j: torch.mode(torch.stack([i, j, j]), 0),
    sets=lambda i, j: (torch.unique(i > 2, return_inverse=True), torch.unique(torch.stack([i, j, i]), dim=0)),
    products=lambda i, j: (torch.addbmm(i[:1, None], i.view(2, -1, 1), j.view(2, 1, -1)), i @ j, torch.outer(i, j)),
)


def test_integers(build: Build) -> None:
    def call() -> tuple[Tensor, ...]:
        return torch.randint(0, 8, (6,)), torch.randint(0, 8, (6,))

    first = call()
    archive = build(INTEGERS, first)
    for args in (first, call(), call(), (first[0], first[0].clone())):
        _same(archive, INTEGERS, *args)
    with pytest.raises(ExecutionError, match="non-negative"):
        archive(-1 - first[0], first[1])


DIVISIONS = Functions(
    floor=lambda a, b: a // b,
    rest=lambda a, b: a % b,
    fmod=lambda a, b: torch.fmod(a, b),
    truncated=lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    narrow=lambda a, b: (a.to(torch.int8) // b.to(torch.int8), a.to(torch.uint8) % b.to(torch.uint8)),
    number=lambda a, b: (a % b[0].item(), a // b[0].item()),
    constant=lambda a, b: (a // 7, a % -5, 100 // b, 100 % b),
    summed=lambda a, b: (a // b).sum(),
)


def test_division_by_zero_fails_the_call(build: Build) -> None:
    def call(n: int) -> tuple[Tensor, ...]:
        a, b = torch.randint(-100, 100, (n,)), torch.randint(-9, 9, (n,))
        return a, torch.where(b == 0, 4, b)

    # Enough that loops have several threads.
    archive = build(DIVISIONS, call(50_000), dynamic_shapes={"args": ({0: Dim("n", min=1)},) * 2})
    for n in (50_000, 1, 77):
        _same(archive, DIVISIONS, *call(n))
    a, b = call(50_000)
    a[0], b[0] = torch.iinfo(torch.int64).min, -1
    assert archive(a, b)["rest"][0] == 0
    for place in (0, 31_234):
        broken = b.clone()
        broken[place] = 0
        with pytest.raises(ExecutionError, match="ZeroDivisionError"):
            archive(a, broken)
    # Several contexts at once: what one divides by is nothing to the others.
    failed: list[BaseException] = []

    def work(divisor: Tensor, zero: bool) -> None:
        for _ in range(20):
            try:
                archive(a, divisor)
                assert not zero
            except ExecutionError:
                assert zero
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(d, z)) for d, z in ((b, False), (broken, True)) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_distances_beside_a_tensor_that_the_model_makes(build: Build) -> None:
    """torch writes into what `torch.tensor` makes, for which the graph is traced a second time."""

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.take(x, torch.tensor([0, 4])), F.pdist(x.t().contiguous().t())

    archive = build(model, (torch.randn(5, 3),), dynamic_shapes={"x": {0: Dim("rows", min=2)}})
    for rows in (5, 2, 9):
        x = torch.randn(rows, 3)
        assert_close(archive(x), model(x), 1e-5)
