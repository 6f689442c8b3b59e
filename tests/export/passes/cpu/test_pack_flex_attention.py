"""The pass that puts score and mask functions into the attention kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from aotpack.export.ir.score_functions import ScoreFunctions, parse
from aotpack.export.ops.flex_attention import flex_attention as blocked
from aotpack.export.ops.flex_attention import flex_softmax
from aotpack.export.passes.cpu.pack_flex_attention import pack_flex_attention
from tests.export.pass_checks import calls, count, run

Score = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons run under modes, which Dynamo refuses."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def attention(score: Score) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda q, k, table: flex_attention(q, k, k, score_mod=lambda *args: score(*args, table))  # type: ignore[no-any-return]


def inputs() -> list[Tensor]:
    return [torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.rand(3, 12)]


def names(functions: ScoreFunctions) -> set[str]:
    return {step.name for step in functions.score}


@pytest.mark.parametrize(
    ("score", "steps"),
    [
        (lambda s, b, h, i, j, t: s + t[h, 0] * (i - j), {"score", "load", "position", "sub", "cast", "mul", "add"}),
        (lambda s, b, h, i, j, t: s + t[h, i - j + 6], {"score", "position", "sub", "literal", "gather", "add"}),
        (
            lambda s, b, h, i, j, t: torch.where(i >= j, s.tanh(), -torch.inf),
            {"score", "position", "ge", "tanh", "where"},
        ),
        (lambda s, b, h, i, j, t: 2 - s.clamp(-1, 1).square(), {"score", "maximum", "minimum", "literal", "sub"}),
        # What does not depend on scores may be anything: it is computed before.
        (lambda s, b, h, i, j, t: s + t.cumsum(1)[h, j], {"score", "load", "add"}),
        (lambda s, b, h, i, j, t: s * t.softmax(0)[h, i].sigmoid(), {"score", "load", "mul"}),
    ],
    ids=["alibi", "table", "causal", "clamped", "running sum", "of a row"],
)
def test_functions_become_steps(score: Score, steps: set[str]) -> None:
    arguments = inputs()
    after = run(attention(score), arguments, pack_flex_attention)
    (call,) = calls(after, blocked)
    found = names(parse(str(call.args[6])))
    assert steps - {"literal"} <= found
    assert not found & {"cumsum", "softmax"}
    assert parse(str(call.args[6])).text() == call.args[6]


@pytest.mark.parametrize(
    "score",
    [
        lambda s, b, h, i, j, t: s + torch.special.i0(s),
        lambda s, b, h, i, j, t: torch.lgamma(s.abs() + 1) + t[h, j],
        lambda s, b, h, i, j, t: t[h, (s * 2).long().clamp(0, 11)].erfinv(),
    ],
    ids=["bessel", "gamma", "of gathered"],
)
def test_other_functions_keep_the_formula(score: Score) -> None:
    after = run(attention(score), inputs(), pack_flex_attention)
    assert count(after, flex_softmax) == 1 and count(after, blocked) == 0
    (report,) = [each for each in after.reports if each.name == "pack-flex-attention"]
    assert "whole matrix of scores" in report.changes[0].note


def test_two_attentions_in_a_row() -> None:
    def model(q: Tensor, k: Tensor) -> Tensor:
        y = flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s + q[b, h, i, 0])
        z: Tensor = flex_attention(y, k, k, score_mod=lambda s, b, h, i, j: s * y[b, h, i, 1])
        return z

    after = run(model, inputs()[:2], pack_flex_attention)
    assert count(after, blocked) == 2
