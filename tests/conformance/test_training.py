"""What the comparison of trainings calls wrong."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.training import _errors

pytestmark = pytest.mark.torch


def test_errors_beyond_those_of_eager_are_wrong() -> None:
    torch.manual_seed(0)
    higher = torch.randn(100, dtype=torch.float64)
    eager = higher + 1e-4 * torch.randn(100)
    assert not _errors(higher + 1e-4 * torch.randn(100), eager, higher, eager).wrong, "as far as eager"
    assert not _errors(higher, eager, higher, eager).wrong, "closer than eager"
    far = higher + 3e-3 * torch.randn(100)
    assert _errors(far, eager, higher, eager).wrong
    assert not _errors(far, eager, higher, higher + 1e-3 * torch.randn(100)).wrong, "as far as the other eager"
    single = higher.clone()
    single[0] += 0.01
    assert not _errors(single, eager, higher, eager).wrong, "one element alone"
    # Within the tolerance, however close eager is.
    near = _errors(higher + 1e-6 * higher.abs().max(), higher, higher, higher)
    assert (near.error < 1e-5, near.own, near.wrong) == (True, 0.0, False)
    assert _errors(higher + 2e-5 * higher.abs().max(), higher, higher, higher).wrong


def test_noise_is_not_judged() -> None:
    noise = _errors(
        torch.randn(10, dtype=torch.float64),
        torch.randn(10, dtype=torch.float64),
        torch.zeros(10).double(),
        torch.randn(10, dtype=torch.float64),
    )
    assert noise.noise
    assert not noise.wrong
    zeros = torch.zeros(3, dtype=torch.float64)
    assert _errors(zeros, zeros, zeros, zeros).error == 0
    assert _errors(zeros + 1e-3, zeros, zeros, zeros).wrong
