"""Tensors of the model that a call gives another shape: an error with the line, and the model stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.errors import CaptureError
from aotpack.export import aot_export

pytestmark = pytest.mark.torch


class Keeping(nn.Module):
    """Has a tensor as a buffer, a parameter or a plain attribute, and changes it."""

    def __init__(self, kind: str, change: Callable[[Tensor, Tensor], None], size: int = 3) -> None:
        super().__init__()
        tensor = torch.zeros(size)
        if kind == "buffer":
            self.register_buffer("kept", tensor)
        else:
            self.kept = nn.Parameter(tensor, requires_grad=False) if kind == "parameter" else tensor
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        self.change(self.kept, x)
        return x + self.kept.sum()


def _resized(kept: Tensor, x: Tensor) -> None:
    kept.resize_(x.shape).copy_(x)


def _unsqueezed(kept: Tensor, x: Tensor) -> None:
    kept.add_(1).unsqueeze_(0)


def _longer(kept: Tensor, x: Tensor) -> None:
    kept.data = torch.cat([kept, x])


def _there_and_back(kept: Tensor, x: Tensor) -> None:
    kept.unsqueeze_(0).add_(1).squeeze_(0)


@pytest.mark.parametrize("kind", ["buffer", "parameter", "attribute"])
@pytest.mark.parametrize("change", [_resized, _unsqueezed, _longer])
def test_another_shape_is_an_error(kind: str, change: Any) -> None:
    model = Keeping(kind, change, 2)
    name = "self.kept" if kind == "attribute" else f"{kind} 'kept'"
    # An assignment to `.data` runs no operator, so its line is not known.
    line = "" if change is _longer else rf".*test_resized_state.py:\d+, in {change.__name__}: kept\."
    for _ in range(2):
        with pytest.raises(CaptureError, match=rf"(?s)the size of {name} changes in the call, from \(2,\) to{line}"):
            aot_export(model, (torch.ones(3),))
        assert model.kept.tolist() == [0, 0]


def test_a_square_matrix_that_is_transposed() -> None:
    model = Keeping("buffer", lambda kept, x: kept.t_(), 1)
    model.kept.data = torch.arange(4.0).view(2, 2)
    with pytest.raises(
        CaptureError, match=r"the strides of buffer 'kept' change in the call, from \(2, 1\) to \(1, 2\)"
    ):
        aot_export(model, (torch.ones(3),))
    assert model.kept.tolist() == [[0, 1], [2, 3]]


def test_a_loss_and_a_model_that_a_function_calls() -> None:
    model = Keeping("buffer", _resized)
    with pytest.raises(CaptureError, match=r"'model' around <lambda>.kept changes in the call, from \(3,\) to \(2,\)"):
        aot_export(lambda x: model(x).sum(), (torch.ones(2, requires_grad=True),), mode="joint")
    with pytest.raises(CaptureError, match="the size of buffer 'kept' changes"):
        aot_export(Keeping("buffer", _unsqueezed), (torch.ones(1, requires_grad=True),), mode="joint")


@pytest.mark.parametrize("kind", ["buffer", "attribute"])
def test_the_same_shape_in_the_end_is_none(kind: str) -> None:
    program = aot_export(Keeping(kind, _there_and_back), (torch.ones(3),))
    assert [info.mutated for info in program.constants.values()] == [True]
