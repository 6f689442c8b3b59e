"""torch.distributions in archives: gradients through samples, and checks of parameters and values."""

from __future__ import annotations

import pytest
import torch
import torch.distributions as D
from torch import Tensor, nn

from aotpack.errors import ExecutionError
from tests.export.conftest import Build, assert_close

pytestmark = pytest.mark.torch


class Reparameterized(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        result = {}
        for name, distribution in (
            ("gamma", D.Gamma(a, b)),
            ("beta", D.Beta(a, b)),
            ("dirichlet", D.Dirichlet(a)),
            ("chi2", D.Chi2(a)),
        ):
            sample = distribution.rsample()
            of_a, of_b = torch.autograd.grad(sample.sin().sum(), (a, b), allow_unused=True)
            result[name] = (sample.detach(), of_a, a * 0 if of_b is None else of_b)
        return result


def _gamma_gradient(alpha: Tensor, sample: Tensor) -> Tensor:
    return torch._standard_gamma_grad(alpha, sample)


def _dirichlet_gradient(x: Tensor, alpha: Tensor, outer: Tensor) -> Tensor:
    moved = torch._dirichlet_grad(x, alpha, alpha.sum(-1, True).expand_as(alpha))
    return moved * (outer - (x * outer).sum(-1, True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_through_samples(build: Build, dtype: torch.dtype) -> None:
    """Given what an archive drew, its gradients are those of torch in double precision at that draw."""
    # From far below 1, where a draw is tiny, to where expansions at the saddle point are used.
    a, b = (torch.rand(2, 60, 8, dtype=torch.float64) * 6 - 3).exp().to(dtype)
    model = build(Reparameterized(), (a, b), dynamic_shapes={"a": {0: "rows"}, "b": {0: "rows"}})
    for rows in (60, 1):
        x, y = a[:rows] * 0.9, b[:rows]
        wide, other = x.double(), y.double()
        result = model(x, y)
        sample, of_a, of_b = (t.double() for t in result["gamma"])
        tolerance = 1e-4 if dtype == torch.float32 else 1e-9
        assert_close(of_a, sample.cos() * _gamma_gradient(wide, sample * other) / other, tolerance)
        assert_close(of_b, sample.cos() * -sample / other, tolerance)
        sample, of_a, of_b = (t.double() for t in result["beta"])
        shares, outer = torch.stack([sample, 1 - sample], -1), torch.stack([sample.cos(), sample * 0], -1)
        # Near its ends a share is known by its distance to 0 alone, which torch does not keep.
        inside = (sample > 0.02) & (sample < 0.98)
        wanted = _dirichlet_gradient(shares, torch.stack([wide, other], -1), outer)
        assert_close(of_a[inside], wanted[..., 0][inside], 1e-3)
        assert_close(of_b[inside], wanted[..., 1][inside], 1e-3)
        sample, of_a, _ = (t.double() for t in result["dirichlet"])
        assert_close(of_a, _dirichlet_gradient(sample, wide, sample.cos()), tolerance)
        sample, of_a, _ = (t.double() for t in result["chi2"])
        assert_close(of_a, sample.cos() * _gamma_gradient(wide / 2, sample / 2), tolerance)


def test_the_gradient_of_a_mean_is_that_of_the_mean(build: Build) -> None:
    """E[x] = a for Gamma(a, 1), and a / (a + b) for Beta(a, b): mean gradients of many draws are known."""

    def means(a: Tensor) -> tuple[Tensor, Tensor]:
        a = a.detach().requires_grad_()
        gamma, beta = D.Gamma(a, torch.ones_like(a)).rsample(), D.Beta(a, torch.full_like(a, 2.0)).rsample()
        return torch.autograd.grad(gamma.sum(), a)[0], torch.autograd.grad(beta.sum(), a)[0]

    model = build(means, (torch.ones(3, 4000),))
    a = torch.tensor([[0.4], [2.5], [20.0]]).expand(3, 4000)
    context = model.context(seed=11)
    gamma, beta = (torch.cat(parts, 1) for parts in zip(*(context(a) for _ in range(5)), strict=True))
    for drawn, wanted in ((gamma, torch.ones(3)), (beta, 2 / (a[:, 0] + 2) ** 2)):
        error = (drawn.mean(1) - wanted).abs()
        assert (error < 4.5 * drawn.std(1) / 20_000**0.5 + 2e-3 * wanted).all(), (drawn.mean(1), wanted)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(5, 4) + 0.5)

    def forward(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        share = D.Dirichlet(self.alpha).rsample()
        return (share * weight).sum(), share


def test_joint(build: Build) -> None:
    module, weight = Policy(), torch.randn(5, 4)
    result = build(module, (weight,), mode="joint")(weight)
    loss, share = result["outputs"]
    torch.testing.assert_close(loss, (share * weight).sum())
    wanted = _dirichlet_gradient(share.double(), module.alpha.detach().double(), weight.double())
    assert_close(result["gradients"]["alpha"], wanted, 1e-4)


class Checked(nn.Module):
    def forward(self, loc: Tensor, scale: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        exponential = D.Exponential(scale)
        return D.Normal(loc, scale).log_prob(value), exponential.log_prob(value), D.Categorical(logits=loc).entropy()


def test_parameters_and_values_are_checked_in_the_call(build: Build) -> None:
    x = torch.rand(3, 4)
    model = build(Checked(), (x, x + 1, x))
    assert_close(model(x, x + 1, x), Checked()(x.double(), x.double() + 1, x.double()))
    with pytest.raises(ExecutionError, match=r"parameter (rate|scale) of distribution (Normal|Exponential) to satisfy"):
        model(x, x - 1, x)
    with pytest.raises(ExecutionError, match=r"value argument to be within the support .* of the distribution Expon"):
        model(x, x + 1, -1 - x)
    with pytest.raises(ExecutionError, match=r"parameter (loc|logits) of distribution (Normal|Cat).* Real\(\)"):
        model(torch.full((3, 4), torch.nan), x + 1, x)


def test_checks_do_not_depend_on_what_was_compiled_before(build: Build) -> None:
    """TorchDynamo turns the checks of distributions off for the whole process."""
    value = torch.distributions.Distribution._validate_args
    try:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        # It does so once: another test may have put them back.
        torch.distributions.Distribution.set_default_validate_args(False)
        x = torch.rand(3, 4)
        model = build(Checked(), (x, x + 1, x))
        with pytest.raises(ExecutionError, match=r"parameter (rate|scale) of distribution (Normal|Exponential)"):
            model(x, x - 1, x)
    finally:
        torch.distributions.Distribution.set_default_validate_args(value)
