"""Losses through archives, forward and backward, against eager in double precision."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpack.errors import ExecutionError
from tests.support.building import Build, assert_close, check_joint
from tests.support.torch_version import needs_torch

pytestmark = pytest.mark.torch

SIZES = {"steps": 12, "batch": 3, "labels": 6}


class Losses(nn.Module):
    """A sum of losses over one set of logits [steps, batch, labels]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, SIZES["labels"])

    def forward(
        self,
        x: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: torch.Tensor,
        lengths: torch.Tensor,
        classes: torch.Tensor,
        variance: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.linear(x)
        scores, flat = logits.log_softmax(-1), logits.flatten(0, 1)
        weight = torch.linspace(0.5, 2, SIZES["labels"], dtype=x.dtype)
        parts = [
            F.ctc_loss(scores, targets, input_lengths, lengths, zero_infinity=True),
            F.ctc_loss(scores, targets, (12, 12, 12), (4, 1, 2), reduction="sum") / 100,
            nn.CTCLoss(reduction="none")(scores[:, 0], targets[0], input_lengths[0], lengths[0]).sum(),
            F.gaussian_nll_loss(logits, logits.detach().roll(1, 0), variance),
            F.nll_loss(scores.flatten(0, 1), classes, weight=weight, ignore_index=2),
            F.nll_loss(scores.permute(1, 2, 0).unsqueeze(-1).contiguous(), classes.view(3, 12, 1), reduction="sum")
            / 10,
            F.cross_entropy(flat, classes, weight=weight, label_smoothing=0.1, ignore_index=1),
            F.cross_entropy(flat, flat.detach().softmax(-1)),
            F.multi_margin_loss(flat, classes.clamp(min=0), p=2, weight=weight),
            F.multilabel_margin_loss(flat[:2], torch.tensor([[1, 3, -1, 0, 0, 0], [5, 4, 3, -1, 0, 1]])),
        ]
        for reduce in ("max", "min", "mean", "sum", "prod"):
            parts.append(torch.segment_reduce(flat, reduce, lengths=input_lengths * 0 + 12).sum() / 50)
        return torch.stack(parts).sum(), torch.stack(parts)


def arguments() -> tuple[torch.Tensor, ...]:
    return (
        torch.randn(12, 3, 5),
        torch.tensor([[1, 1, 3, 2], [5, 4, 3, 2], [2, 3, 0, 0]]),
        torch.tensor([12, 10, 4]),
        torch.tensor([4, 4, 2]),
        torch.randint(0, 6, (36,)),
        torch.rand(12, 3, 6),
    )


def test_losses_and_gradients(build: Build) -> None:
    torch.manual_seed(1)
    model = Losses()
    first = arguments()
    archive = build(model, (*first[:5], first[5].requires_grad_()), mode="joint")
    calls = [arguments() for _ in range(2)]
    # One that cannot be aligned: its loss is 0 by zero_infinity, and its gradient too.
    calls[1][2][1] = 3
    check_joint(archive, model, *((*call[:5], call[5].requires_grad_()) for call in calls))
    bad = arguments()
    for index, value, message in ((2, 13, "at most 12"), (3, 5, "at least 5 at dimension 1")):
        broken = list(bad)
        broken[index] = torch.full((3,), value)
        with pytest.raises(ExecutionError, match=message):
            archive(*broken)
    with pytest.raises(ExecutionError, match="var has negative entry/entries"):
        archive(*bad[:5], -bad[5])


class Renormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8, max_norm=1.5)
        self.bags = nn.EmbeddingBag(30, 8, max_norm=1.0, norm_type=1.0)

    def forward(self, index: torch.Tensor) -> Any:
        return self.words(index), self.bags(index), self.words.weight + 0


@needs_torch(2, 12, "turns rows that it keeps short")
def test_embeddings_are_kept_short(build: Build) -> None:
    torch.manual_seed(2)
    model = Renormed().eval()
    calls = [torch.randint(0, 30, (4, 5)) for _ in range(3)]
    fresh = copy.deepcopy(model)
    context = build(fresh, (calls[0],)).context()
    before = model.words.weight.detach().clone()
    for index in calls:
        got = context(index)
        want = model(index)
        assert_close(got, [w.double() for w in want], 1e-6)
        assert not torch.equal(want[2], before)


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="torch 2.13 has it")
def test_linear_cross_entropy(build: Build) -> None:
    from torch.nn.modules import linear_cross_entropy as chunked

    scalar, rows = chunked._linear_cross_entropy_batch_chunked, chunked._linear_cross_entropy_batch_chunked_no_reduction

    def losses(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        how = (4, "keep", torch.float32)
        return [
            *(scalar(x, w, t, b, c, r, 3, 0.0, *how, True, True, True, True) for r in ("mean", "sum")),
            scalar(x, w, t, None, None, "mean", -100, 0.0, *how, True, False, True, False),
            rows(x, w, t, b, c, 3, *how),
        ]

    torch.manual_seed(3)
    call = (torch.randn(10, 6), torch.randn(7, 6), torch.randint(0, 7, (10,)), torch.randn(7), torch.rand(7))
    archive = build(losses, call)
    call = (torch.randn(10, 6), torch.randn(7, 6), torch.randint(0, 7, (10,)), torch.randn(7), torch.rand(7))
    want = losses(*call)
    for got, expected in zip(archive(*call), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
