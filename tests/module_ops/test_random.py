"""Operators that draw random numbers: distributions, streams, limits. Seeds are fixed, so a run is like any other."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest
import scipy.stats as st
import torch

from tests.module_ops.cases import arrange
from tests.module_ops.harness import DTYPES, Driver, MakeDriver, OperatorError

pytestmark = pytest.mark.torch

SEEDS = (0, 1, -7, 1 << 40, (1 << 63) - 1)
COUNT = 20_000


@pytest.fixture(scope="session")
def draws(make_driver: MakeDriver) -> Driver:
    return make_driver("random_driver", ("random_draws", "bounds"))


def seed(value: int) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.int64)


def assert_likely(values: Sequence[float]) -> None:
    """p-values of independent tests: none absurd, and all together as uniform as they should be."""
    assert min(values) > 1e-4 / len(values), values
    assert st.combine_pvalues(values).pvalue > 1e-3, values


def fits(sample: torch.Tensor, distribution: object, *, least: float = 10) -> float:
    """The p-value of the chi-square test of integers against a distribution; rare values are put together."""
    counts = torch.bincount(sample.long()).tolist()
    masses = sample.numel() * distribution.pmf(range(len(counts)))  # type: ignore[attr-defined]
    observed, expected = [0.0], [0.0]
    for count, mass in zip(counts, masses, strict=True):
        observed[-1] += count
        expected[-1] += mass
        if expected[-1] >= least:
            observed.append(0.0)
            expected.append(0.0)
    # The last takes what is rare, and what is beyond the greatest value drawn.
    rare = observed.pop()
    expected.pop()
    observed[-1] += rare
    expected[-1] = sample.numel() - (sum(expected) - expected[-1])
    return float(st.chisquare(observed, expected).pvalue)


def test_philox_is_the_published_one(draws: Driver) -> None:
    # Known answers of Random123's philox4x32_10.
    assert draws("philox", [], [0, 0, 0])[0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert draws("philox", [], [-1, -1, -1])[0].tolist() == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88 - (1 << 64)]
    assert draws("philox", [], pi)[0].tolist() == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


DISTRIBUTIONS: list[tuple[str, Callable[[], list[torch.Tensor]], object]] = [
    (f"gamma {a}", lambda a=a: [torch.full((COUNT,), a, dtype=torch.float64)], st.gamma(a))  # type: ignore[misc]
    for a in (0.05, 0.7, 1.0, 3.5, 200.0)
]
DISTRIBUTIONS += [
    (f"poisson {r}", lambda r=r: [torch.full((COUNT,), r, dtype=torch.float64)], st.poisson(r))  # type: ignore[misc]
    for r in (0.1, 3.0, 9.9, 10.1, 60.0, 5000.0)
]
DISTRIBUTIONS += [
    (f"binomial {n} {p}", lambda n=n, p=p: [torch.full((COUNT,), n), torch.full((COUNT,), p)], st.binom(n, p))  # type: ignore[misc]
    for n, p in ((1.0, 0.3), (20.0, 0.1), (40.0, 0.5), (40.0, 0.9), (1000.0, 0.25), (1000.0, 0.999))
]


@pytest.mark.parametrize(("name", "arguments", "distribution"), DISTRIBUTIONS, ids=[d[0] for d in DISTRIBUTIONS])
def test_distributions(
    draws: Driver, name: str, arguments: Callable[[], list[torch.Tensor]], distribution: object
) -> None:
    pvalues = []
    for value in SEEDS:
        (sample,) = draws(name.split()[0], [*arguments(), seed(value)])
        assert sample.shape == (COUNT,)
        if name.startswith("gamma"):
            pvalues.append(st.kstest(sample.numpy(), distribution.cdf).pvalue)  # type: ignore[attr-defined]
        else:
            assert torch.equal(sample, sample.round())
            pvalues.append(fits(sample, distribution))
    assert_likely(pvalues)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dirichlet(draws: Driver, dtype: torch.dtype) -> None:
    alpha = torch.tensor([0.5, 2.0, 4.5], dtype=dtype)
    pvalues = []
    for value in SEEDS:
        (sample,) = draws("dirichlet", [alpha.expand(5000, 3), seed(value)])
        assert sample.dtype == dtype
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
        assert (sample.sum(1) - 1).abs().max() < tolerance
        if dtype in (torch.float32, torch.float64):
            for i in range(3):
                share = st.beta(float(alpha[i]), float(alpha.sum() - alpha[i]))
                pvalues.append(st.kstest(sample[:, i].double().numpy(), share.cdf).pvalue)
    if pvalues:
        assert_likely(pvalues)


def test_dirichlet_of_tiny_concentrations(draws: Driver) -> None:
    """All gammas are below the least double: logarithms still tell them apart."""
    (sample,) = draws("dirichlet", [torch.full((300, 4), 1e-4, dtype=torch.float64), seed(3)])
    assert not sample.isnan().any()
    assert (sample.amax(1) > 0.99).float().mean() > 0.95


def test_integers(draws: Driver) -> None:
    pvalues = []
    for value, (low, last) in itertools.product(SEEDS, [(-3, 3), (5, 5 + 999), (-(1 << 63), (1 << 63) - 1), (0, 0)]):
        (sample,) = draws("integers", [seed(value)], [low, last, 4, COUNT // 4])
        assert sample.shape == (4, COUNT // 4)
        assert low <= int(sample.min())
        assert int(sample.max()) <= last
        if last - low == 6:
            pvalues.append(st.chisquare(torch.bincount(sample.flatten() + 3, minlength=7)).pvalue)
        elif last > low:
            unit = (sample.flatten().double() - low) / (last - low)
            pvalues.append(st.kstest(unit.numpy(), st.uniform.cdf).pvalue)
    assert_likely(pvalues)
    # 3 * 2^62 numbers: the remainder of a 64-bit number would give a third of them half of the mass.
    (sample,) = draws("integers", [seed(4)], [-(1 << 63), (1 << 62) - 1, COUNT])
    thirds = torch.bincount((sample.double() / 2.0**62).floor().long() + 2, minlength=3)
    assert st.chisquare(thirds).pvalue > 1e-4


def test_permutations_are_equally_likely(draws: Driver) -> None:
    for n in (2, 3, 4):
        seen = [tuple(draws("permutation", [seed(s)], [n, DTYPES[torch.int64]])[0].tolist()) for s in range(1500)]
        kinds = list(itertools.permutations(range(n)))
        assert st.chisquare([seen.count(kind) for kind in kinds]).pvalue > 1e-4
    # Where one element lands, of many.
    where = [int((draws("permutation", [seed(s)], [50, DTYPES[torch.int64]])[0] == 49).nonzero()) for s in range(2000)]
    assert st.chisquare(torch.bincount(torch.tensor(where), minlength=50)).pvalue > 1e-4


# Eager has none of the other dtypes.
_PERMUTED = [d for d in DTYPES if d.is_signed and not d.is_complex and "float8" not in str(d)] + [torch.uint8]


@pytest.mark.parametrize("dtype", _PERMUTED, ids=str)
def test_permutation_dtypes(draws: Driver, dtype: torch.dtype) -> None:
    for n in (0, 1, 100):
        (got,) = draws("permutation", [seed(n)], [n, DTYPES[dtype]])
        assert got.dtype == dtype
        assert sorted(got.tolist()) == list(range(n))
    if dtype in (torch.int8, torch.uint8, torch.bfloat16):
        most = 256 if dtype == torch.bfloat16 else torch.iinfo(dtype).max
        draws("permutation", [seed(0)], [most + 1, DTYPES[dtype]])
        with pytest.raises(OperatorError, match=f"n cannot be greater than {most}"):
            draws("permutation", [seed(0)], [most + 2, DTYPES[dtype]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_multinomial_with_replacement(draws: Driver, dtype: torch.dtype) -> None:
    weights = torch.tensor([[0.5, 0.0, 2.0, 1.5, 0.0], [0.0, 1.0, 0.0, 1.0, 2.0]], dtype=dtype)
    pvalues = []
    for value in SEEDS:
        (sample,) = draws("multinomial", [weights, seed(value)], [COUNT // 4, 1])
        assert sample.shape == (2, COUNT // 4)
        assert sample.dtype == torch.int64
        for row in range(2):
            counts = torch.bincount(sample[row], minlength=5)
            some = weights[row] > 0
            assert not counts[~some].any()
            expected = weights[row][some].double() * (COUNT // 4) / weights[row].double().sum()
            pvalues.append(st.chisquare(counts[some], expected).pvalue)
    assert_likely(pvalues)


def test_multinomial_without_replacement(draws: Driver) -> None:
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0])
    (sample,) = draws("multinomial", [weights.expand(6000, 4), seed(5)], [4, 0])
    assert torch.equal(sample.sort(1).values, torch.arange(4).expand(6000, 4))
    assert (sample[:, 3] == 2).all(), "what has no mass comes last"
    orders: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations((0, 1, 3)):
        left, chance = 6.0, 1.0
        for category in order:
            chance *= float(weights[category]) / left
            left -= float(weights[category])
        orders[order] = chance
    seen = [tuple(row) for row in sample[:, :3].tolist()]
    assert st.chisquare([seen.count(o) for o in orders], [p * 6000 for p in orders.values()]).pvalue > 1e-4


def test_numbers_do_not_depend_on_threads_or_layout(draws: Driver) -> None:
    rate = torch.rand(300, 200) * 20
    for name, tensors in {
        "poisson": [rate],
        "gamma": [rate],
        "dirichlet": [rate],
        "binomial": [rate.floor(), torch.rand(300, 200)],
    }.items():
        once = draws(name, [*tensors, seed(9)], threads=1)[0]
        assert torch.equal(once, draws(name, [*tensors, seed(9)], threads=3)[0])
        assert not torch.equal(once, draws(name, [*tensors, seed(10)], threads=3)[0])
        generator = random.Random(1)
        for _ in range(4):
            moved = [arrange(generator, t) for t in tensors]
            assert torch.equal(
                draws(name, [*moved, seed(9)])[0], draws(name, [*(m.contiguous() for m in moved), seed(9)])[0]
            )
    for replacement in (0, 1):
        pair = [draws("multinomial", [rate, seed(9)], [50, replacement], threads=t)[0] for t in (1, 3)]
        assert torch.equal(*pair)
    pair = [draws("integers", [seed(9)], [0, 99, 100_000], threads=t)[0] for t in (1, 2)]
    assert torch.equal(*pair)


def test_streams_are_independent(draws: Driver) -> None:
    """Neighbours in one draw, and draws of neighbouring seeds, have no correlation."""
    n = 100_000
    first, second = (draws("integers", [seed(s)], [0, (1 << 52) - 1, n])[0].double() for s in (1, 2))
    for a, b in ((first[1:], first[:-1]), (first[2:], first[:-2]), (first, second)):
        correlation = torch.corrcoef(torch.stack([a, b]))[0, 1]
        assert abs(float(correlation)) * math.sqrt(n) < 4


def test_limits(draws: Driver) -> None:
    inf, nan = math.inf, math.nan
    assert draws("poisson", [torch.tensor([0.0, inf, 1e-30]), seed(1)])[0].tolist() == [0.0, inf, 0.0]
    (got,) = draws("gamma", [torch.tensor([0.0, inf, nan, -1.0, 1e-30]), seed(1)])
    tiny = torch.finfo(torch.float32).tiny
    assert got[[0, 1, 4]].tolist() == [tiny, inf, tiny]
    assert got[2:4].isnan().all()
    counts = torch.tensor([0.0, 5.0, 5.0, 5.0, -2.0, nan, inf, 7.9])
    probabilities = torch.tensor([0.5, 0.0, 1.0, 2.0, 0.5, 0.5, 0.5, 0.9999999])
    (got,) = draws("binomial", [counts, probabilities, seed(1)])
    assert got[:5].tolist() == [0.0, 0.0, 5.0, 5.0, 0.0]
    assert got[5].isnan()
    assert got[6] == inf
    for name, count in (("poisson", 1), ("gamma", 1), ("dirichlet", 1), ("binomial", 2)):
        assert draws(name, [*[torch.empty(3, 0)] * count, seed(1)])[0].shape == (3, 0)
    assert draws("multinomial", [torch.ones(0, 3), seed(1)], [2, 0])[0].shape == (0, 2)
    (large,) = draws("poisson", [torch.full((1000,), 1e12, dtype=torch.float64), seed(1)])
    assert abs(float(large.mean()) - 1e12) < 4e6 / math.sqrt(1000) * 1


def test_errors(draws: Driver) -> None:
    for bad in (-1.0, math.nan):
        with pytest.raises(OperatorError, match="expected rate to be non-negative"):
            draws("poisson", [torch.tensor([1.0, bad]), seed(1)])
    for weights, message in (
        (torch.tensor([1.0, -1.0]), "contains either `inf`, `nan` or element < 0"),
        (torch.tensor([1.0, math.nan]), "contains either `inf`, `nan` or element < 0"),
        (torch.tensor([1.0, math.inf]), "contains either `inf`, `nan` or element < 0"),
        (torch.zeros(2), "sum of probabilities <= 0"),
    ):
        for replacement in (0, 1):
            with pytest.raises(OperatorError, match=message):
                draws("multinomial", [weights, seed(1)], [1, replacement])
    with pytest.raises(OperatorError, match="without replacement"):
        draws("multinomial", [torch.ones(2), seed(1)], [3, 0])
    with pytest.raises(OperatorError, match="n_sample <= 0"):
        draws("multinomial", [torch.ones(2), seed(1)], [0, 1])
    with pytest.raises(OperatorError, match="from=5 >= to=5"):
        draws("integers", [seed(1)], [5, 4, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_check_bounds(draws: Driver, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=dtype)
    for given in (x, x.T, x[:, :1].expand(2, 3), x.flip(0), x[:0]):
        (got,) = draws("check_bounds", [given], [0, 1], text="no")
        assert torch.equal(got, given)
        assert got.is_contiguous()
    bad = [2, -1] + ([math.nan] if dtype.is_floating_point else [])
    for value in bad:
        with pytest.raises(OperatorError, match=r"^as the model says$"):
            draws("check_bounds", [torch.tensor([1, value], dtype=dtype)], [0, 1], text="as the model says")
