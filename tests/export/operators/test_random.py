"""Random numbers of archives: distributions, seeds, threads, errors. Seeds are fixed, so a run is like any other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import scipy.stats as st
import torch
import torch.nn.functional as F
from torch import nn

import aotpack
from aotpack.errors import ExecutionError, InputError
from tests.support.building import Build

pytestmark = pytest.mark.torch

N = 4000
SEEDS = range(5)


class Draws(nn.Module):
    def forward(self, x: torch.Tensor, p: torch.Tensor) -> dict[str, torch.Tensor]:
        half, brain, double, whole = x.half(), x.bfloat16(), x.double(), torch.empty(N, dtype=torch.int64)
        return {
            "rand": torch.rand(N),
            "rand half": torch.rand(N, dtype=torch.float16),
            "rand bfloat16": torch.rand(64, N, dtype=torch.bfloat16),
            "rand_like": torch.rand_like(double),
            "randn": torch.randn_like(x),
            "randn half": torch.randn_like(half),
            "uniform": torch.empty_like(x).uniform_(-2, 3),
            "uniform double": torch.empty_like(double).uniform_(5, 5.5),
            "uniform bfloat16": torch.empty_like(brain).uniform_(100, 101),
            "normal": torch.empty_like(x).normal_(1, 2),
            "normal tensors": torch.normal(x * 0 + 1, p * 4),
            "normal std": torch.normal(1.0, p * 4),
            "normal bfloat16": torch.normal(brain * 0 + 1, 2.0),
            "exponential": torch.empty_like(x).exponential_(0.5),
            "exponential double": torch.empty_like(double).exponential_(0.5),
            "exponential half": torch.empty_like(half).exponential_(1000),
            "cauchy": torch.empty_like(x).cauchy_(1, 2),
            "log_normal": torch.empty_like(x).log_normal_(0.1, 0.2),
            "geometric": torch.empty_like(x).geometric_(0.3),
            "geometric int": whole.geometric_(0.01),
            "bernoulli": torch.bernoulli(p),
            "bernoulli p": torch.empty_like(half).bernoulli_(0.1),
            "bernoulli int": torch.empty(N, dtype=torch.uint8).bernoulli_(p),
            "randint": torch.randint(0, 7, (N,)),
            "randint wide": torch.randint(-(1 << 62), 1 << 62, (N,)),
            "random_": torch.empty(N, dtype=torch.uint8).random_(),
            "poisson": torch.poisson(p * 7),
            "binomial": torch.binomial(p * 0 + 20, p),
            "gamma": torch._standard_gamma(p * 3),
            "dirichlet": torch._sample_dirichlet(torch.ones(N, 2) * p[:2]),
            "randperm": torch.randperm(N),
            "multinomial": torch.multinomial(p[:4].cumsum(0), N, replacement=True),
            "choice": torch.multinomial(p, 100),
            "dropout": F.dropout(x * 0 + 1, 0.25),
            "dropout bfloat16": F.dropout(brain * 0 + 1, 0.1),
            "dropout2d": F.dropout2d(torch.ones(80, 50, 2, 3) * p[0], 0.25),
            "alpha_dropout": F.alpha_dropout(x, 0.25, training=True),
            "rrelu": F.rrelu(-p, 0.25, 0.75, training=True),
        }


@pytest.fixture(scope="module")
def draws(tmp_path_factory: pytest.TempPathFactory, cache_dir: Any) -> aotpack.Model:
    from aotpack.export import BuildOptions, aot_export, build_archive

    path = tmp_path_factory.mktemp("draws") / "draws.aotpack"
    program = aot_export(Draws(), (torch.randn(N), torch.full((N,), 0.5)))
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return aotpack.load(path, num_threads=2)


X, P = torch.linspace(-3, 3, N), torch.full((N,), 0.5)

CONTINUOUS = {
    "rand": st.uniform,
    "rand_like": st.uniform,
    "randn": st.norm,
    "uniform": st.uniform(-2, 5),
    "uniform double": st.uniform(5, 0.5),
    "normal": st.norm(1, 2),
    "normal tensors": st.norm(1, 2),
    "normal std": st.norm(1, 2),
    "exponential": st.expon(scale=2),
    "exponential double": st.expon(scale=2),
    "cauchy": st.cauchy(1, 2),
    "log_normal": st.lognorm(0.2, scale=math.exp(0.1)),
    "randint wide": st.uniform(-(2.0**62), 2.0**63),
    "gamma": st.gamma(1.5),
    "rrelu": st.uniform(-0.375, 0.25),
}
# Few bits: the distance to the distribution function has a floor of half of a step.
ROUNDED = {"rand half": (st.uniform, 2e-4), "randn half": (st.norm, 4e-4), "normal bfloat16": (st.norm(1, 2), 4e-3)}
DISCRETE: dict[str, list[float]] = {
    "bernoulli": [0.5, 0.5],
    "bernoulli p": [0.9, 0.1],
    "bernoulli int": [0.5, 0.5],
    "randint": [1 / 7] * 7,
    "random_": [1 / 256] * 256,
    "poisson": [*st.poisson(3.5).pmf(range(11)), st.poisson(3.5).sf(10)],
    "binomial": [float(st.binom(20, 0.5).cdf(4)), *st.binom(20, 0.5).pmf(range(5, 16)), st.binom(20, 0.5).sf(15)],
    "geometric": [*st.geom(0.3).pmf(range(1, 12)), st.geom(0.3).sf(11)],
    "multinomial": [0.1, 0.2, 0.3, 0.4],
    "dropout": [0.25, 0.75],
    "dropout bfloat16": [0.1, 0.9],
    "dropout2d": [0.25, 0.75],
}
CLASSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "poisson": lambda v: v.clamp(max=11),
    "binomial": lambda v: v.clamp(4, 16) - 4,
    "geometric": lambda v: v.clamp(max=12) - 1,
    "dropout": lambda v: v > 0,
    "dropout bfloat16": lambda v: v > 0,
    "dropout2d": lambda v: v[:, :, 0, 0] > 0,
}


@pytest.fixture(scope="module")
def results(draws: aotpack.Model) -> list[dict[str, torch.Tensor]]:
    return [draws.context(seed=seed)(X, P) for seed in SEEDS]


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_distribution(results: list[dict[str, torch.Tensor]], name: str) -> None:
    pvalues = []
    for result in results:
        sample = result[name]
        if name in CONTINUOUS:
            pvalues.append(st.kstest(sample.double().flatten().numpy(), CONTINUOUS[name].cdf).pvalue)
        else:
            classes = CLASSES.get(name, lambda v: v)(sample).flatten().long()
            counts = torch.bincount(classes, minlength=len(DISCRETE[name]))
            expected = [mass * classes.numel() for mass in DISCRETE[name]]
            pvalues.append(st.chisquare(counts, expected, sum_check=False).pvalue)
    # Of some thirty such tests, one in a few hundred runs would fail by chance; seeds are fixed, so none does.
    assert min(pvalues) > 1e-5, pvalues
    assert st.combine_pvalues(pvalues).pvalue > 1e-4, pvalues


@pytest.mark.parametrize("name", ROUNDED)
def test_halves(results: list[dict[str, torch.Tensor]], name: str) -> None:
    distribution, floor = ROUNDED[name]
    sample = torch.cat([result[name].double().flatten() for result in results]).numpy()
    assert st.kstest(sample, distribution.cdf).statistic < floor + 1.95 / math.sqrt(len(sample))


def test_ranges(results: list[dict[str, torch.Tensor]]) -> None:
    for result in results:
        for name in ("rand", "rand half", "rand bfloat16", "rand_like"):
            assert result[name].min() >= 0 and result[name].max() < 1, name
        assert result["rand bfloat16"].max() > 0.99
        assert result["uniform bfloat16"].min() >= 100 and result["uniform bfloat16"].max() < 101
        assert result["exponential half"].min() > 0
        assert torch.equal(result["randperm"].sort().values, torch.arange(N))
        assert len(result["choice"].unique()) == 100
        assert (result["dirichlet"].sum(1) - 1).abs().max() < 1e-5
        scale = result["dropout"][result["dropout"] > 0]
        assert torch.equal(scale, torch.full_like(scale, float(torch.tensor(1.0) * (1 / 0.75))))
        features = result["dropout2d"].flatten(2)
        assert (features == features[:, :, :1]).all()
        # Negative and positive halves of what is kept stay together, and the rest has one value.
        assert len(result["alpha_dropout"].unique()) < N - N // 5
        assert result["geometric int"].min() >= 1 and abs(float(result["geometric int"].double().mean()) - 100) < 8


def test_seeds_repeat_on_any_number_of_threads(draws: aotpack.Model, results: list[dict[str, torch.Tensor]]) -> None:
    context = draws.context(seed=0, num_threads=1)
    first, second = context(X, P), context(X, P)
    other = results[1]
    for name, want in results[0].items():
        assert torch.equal(first[name], want), name
        assert not torch.equal(second[name], want), f"{name} repeats from call to call"
        assert not torch.equal(other[name], want), f"{name} repeats from seed to seed"
    context.seed(0)
    again = context(X, P)
    assert all(torch.equal(again[name], want) for name, want in results[0].items())
    unseeded = [draws(X, P)["randn"], draws.context()(X, P)["randn"], draws.context()(X, P)["randn"]]
    assert not any(torch.equal(unseeded[i], unseeded[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_draws_are_independent(draws: aotpack.Model, results: list[dict[str, torch.Tensor]]) -> None:
    """Neighbours, different operators of a call, and neighbouring calls have no correlation."""
    context = draws.context(seed=3)
    calls = [context(X, P) for _ in range(2)]
    names = ["rand", "randn", "uniform", "normal", "exponential", "log_normal", "gamma", "poisson", "bernoulli"]
    columns = [calls[c][name].double() for c in range(2) for name in names]
    columns += [calls[0][name].double().roll(1) for name in names]
    correlation = torch.corrcoef(torch.stack(columns))
    off_diagonal = correlation[~torch.eye(len(columns), dtype=torch.bool)]
    assert float(off_diagonal.abs().max()) * math.sqrt(N) < 4.5


INTEGERS: dict[str, tuple[torch.dtype, tuple[Any, ...], int, int]] = {
    "from to": (torch.int64, (-3, 5), -3, 4),
    "to": (torch.int32, (7,), 0, 6),
    "uint8": (torch.uint8, (), 0, 255),
    "uint8 from": (torch.uint8, (5, None), 5, 255),
    "int8": (torch.int8, (), 0, 127),
    "int8 from to": (torch.int8, (-128, 128), -128, 127),
    "int16": (torch.int16, (-40, 2), -40, 1),
    "int64": (torch.int64, (), 0, (1 << 63) - 1),
    "int64 full": (torch.int64, (-(1 << 63), None), -(1 << 63), (1 << 63) - 1),
    "int32 from": (torch.int32, (-1, None), -1, (1 << 31) - 1),
    "bool": (torch.bool, (), 0, 1),
    "bool to": (torch.bool, (2,), 0, 1),
    "bool from to": (torch.bool, (0, 2), 0, 1),
    "half": (torch.float16, (), 0, 2048),
    "half from to": (torch.float16, (-9, 10), -9, 9),
    "bfloat16": (torch.bfloat16, (), 0, 256),
    "bfloat16 from": (torch.bfloat16, (250, None), 250, 256),
    "float": (torch.float32, (), 0, 1 << 24),
    "float from to": (torch.float32, (100, 120), 100, 119),
    "float full": (torch.float32, (-(1 << 63), None), -(1 << 63), 1 << 63),
    "double": (torch.float64, (), 0, 1 << 53),
    "double from to": (torch.float64, (-(1 << 40), 1 << 40), -(1 << 40), (1 << 40) - 1),
    "rounded bfloat16": (torch.bfloat16, (2049, 6000), 2064, 5984),
    "rounded half": (torch.float16, (-5001, 5002), -5000, 5000),
}


class Integers(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        # Rows that are every second of a tensor, so that what lies between them shows if it is written.
        held = {name: x.new_full((x.shape[0], 2), 1.0).to(dtype) for name, (dtype, *_) in INTEGERS.items()}
        for name, (_, bounds, *_) in INTEGERS.items():
            held[name][:, 0].random_(*bounds)
        return held


def test_random_of_every_dtype(build: Build) -> None:
    rows = aotpack.Dim("rows", min=0)
    model = build(Integers(), (torch.empty(N),), dynamic_shapes={"x": {0: rows}})
    context = model.context(seed=5)
    result = context(torch.empty(2 * N))
    again = context(torch.empty(2 * N))
    for name, (dtype, _, low, high) in INTEGERS.items():
        assert result[name].dtype == dtype
        assert (result[name][:, 1] == 1).all(), name
        values = result[name][:, 0].double()
        assert not torch.equal(values, again[name][:, 0].double()), name
        # The ends of a short range are met; of a long one something near them is.
        span = high - low
        assert low <= values.min() <= low + span / 100, name
        assert high - span / 100 <= values.max() <= high, name
        if name.startswith("rounded"):
            continue
        if span < 100:
            assert st.chisquare(torch.bincount((values - low).long(), minlength=span + 1)).pvalue > 1e-4, name
        elif span > 1 << 16:
            assert st.kstest(((values - float(low)) / float(span)).numpy(), st.uniform.cdf).pvalue > 1e-4, name
    assert model(torch.empty(0))["float full"].shape == (0, 2)


def test_random_out_of_the_range_of_a_dtype() -> None:
    from aotpack.errors import CaptureError
    from aotpack.export import aot_export

    for dtype, bounds, message in (
        (torch.uint8, (-1, 5), "from is out of bounds"),
        (torch.int8, (0, 129), "to - 1 is out of bounds"),
        (torch.bool, (0, 3), "to - 1 is out of bounds"),
        (torch.float16, (-70000, 5), "from is out of bounds"),
        (torch.int64, (3, 3), "less than 'to'"),
        (torch.int32, (-(1 << 63), None), "handles only"),
    ):
        with pytest.raises(CaptureError, match=message):
            aot_export(lambda x, d=dtype, b=bounds: x.to(d).random_(*b), (torch.ones(3),))


class Refusing(nn.Module):
    def forward(self, which: torch.Tensor, values: torch.Tensor, limit: torch.Tensor) -> Any:
        return (
            torch.bernoulli(torch.where(which == 0, values, 0.5)),
            torch.normal(0.0, torch.where(which == 1, values, 1.0)),
            torch.poisson(torch.where(which == 2, values, 1.0)),
            torch.multinomial(torch.where(which == 3, values, 1.0), 1),
            torch.randint(0, limit.shape[0], (3,)),
        )


def test_errors(build: Build) -> None:
    rows = aotpack.Dim("rows", max=9)
    model = build(Refusing(), (torch.tensor(0), torch.rand(4), torch.rand(3)), dynamic_shapes={"limit": {0: rows}})
    model(torch.tensor(-1), torch.tensor([-1.0, 2.0, math.nan, 0.0]), torch.rand(1))
    for which, value, message in (
        (0, -0.1, "p_in >= 0 && p_in <= 1"),
        (0, 1.5, "p_in >= 0 && p_in <= 1"),
        (0, math.nan, "p_in >= 0 && p_in <= 1"),
        (1, -1.0, "std >= 0.0"),
        (2, -1.0, "rate to be non-negative"),
        (3, -1.0, "element < 0"),
        (3, math.inf, "`inf`"),
    ):
        with pytest.raises(ExecutionError, match=message):
            model(torch.tensor(which), torch.tensor([1.0, value, 1.0, 1.0]), torch.rand(1))
    # The range must not be empty: that is known of the size before anything runs.
    with pytest.raises(InputError, match=r"'rows'\) must be in \[1, 9\], got 0"):
        model(torch.tensor(-1), torch.rand(4), torch.rand(0))


class Trained(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dropped = F.dropout(x, 0.4)
        leaky = F.rrelu(y, 0.2, 0.6, training=True)
        return dropped.sum() + leaky.sum(), dropped, leaky


def test_backward_sees_the_numbers_of_the_forward(build: Build) -> None:
    x, y = torch.rand(50, 40) + 1, torch.randn(50, 40)
    model = build(Trained(), (x.clone().requires_grad_(), y.clone().requires_grad_()), mode="joint")
    result = model(x, y)
    of_x, of_y = result["input_gradients"].values()
    _, dropped, leaky = result["outputs"]
    assert 0.3 < (dropped == 0).float().mean() < 0.5
    torch.testing.assert_close(of_x, dropped / x)
    torch.testing.assert_close(of_y, leaky / y)
