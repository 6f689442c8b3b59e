"""Sums with a factor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.export.conftest import Build, assert_close

pytestmark = pytest.mark.torch


def test_a_factor_beside_a_product_is_kept(build: Build) -> None:
    """TorchInductor makes one call of the product and the sum."""

    def model(x: Tensor, a: Tensor, b: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        product = a @ b
        return (
            torch.add(x, product, alpha=-0.1),
            product.add(x, alpha=3),
            torch.sub(x, product, alpha=2),
            torch.add(x, product),
            torch.add(i, i @ i, alpha=2),
        )

    x, a, b = torch.randn(4, 5), torch.randn(4, 3), torch.randn(3, 5)
    i = torch.randint(-9, 9, (4, 4))
    archive = build(model, (x, a, b, i), any_size=False)
    assert_close(archive(x, a, b, i), model(x, a, b, i), 1e-5)
