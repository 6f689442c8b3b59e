"""The pass that removes dropout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export.passes.common.dropout import remove_dropout
from tests.export.pass_checks import count, operators, run

aten = torch.ops.aten


class TestDropout:
    @pytest.mark.parametrize(
        "model", [nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()], ids=lambda m: str(m)
    )
    def test_goes_at_inference_and_stays_in_training(self, model: nn.Module) -> None:
        x = torch.randn(2, 3, 4, 5)
        chain = nn.Sequential(nn.ReLU(), model, nn.ReLU())
        assert operators(run(chain.eval(), (x,), remove_dropout)) == ["aten.relu.default"] * 2
        assert len(operators(run(chain.train(), (x,), remove_dropout))) == 3

    def test_probability_zero_goes_in_training(self) -> None:
        after = run(lambda x: F.dropout(x.sin(), p=0.0, training=True), (torch.randn(3),), remove_dropout)
        assert operators(after) == ["aten.sin.default"]

    def test_the_form_with_a_mask(self) -> None:
        def function(x: Tensor) -> tuple[Tensor, Tensor]:
            y, mask = torch.native_dropout(x.sin(), 0.5, False)
            return y.cos(), mask

        after = run(function, (torch.randn(3),), remove_dropout)
        assert operators(after) == ["aten.sin.default", "aten.ones_like.default", "aten.cos.default"]
        training = run(lambda x: torch.native_dropout(x, 0.5, True)[0], (torch.randn(3),), remove_dropout)
        assert count(training, aten.native_dropout.default) == 1
