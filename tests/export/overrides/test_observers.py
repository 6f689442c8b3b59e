"""Quantization-aware training: observers and fake quantization by moving ranges, whose state belongs to a context."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization import (
    FusedMovingAvgObsFakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    default_fused_per_channel_wt_fake_quant,
)

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export
from tests.support.building import Build, assert_close

pytestmark = pytest.mark.torch

observed = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional.default
# (quant_min, quant_max, symmetric, by row)
KINDS = list(itertools.product([(0, 255), (-7, 8)], [False, True], [False, True]))


def every_kind(x: Tensor, switches: Tensor, low: Tensor, high: Tensor, scale: Tensor, zero: Tensor) -> list[Any]:
    results = []
    for (least, most), symmetric, by_row in KINDS:
        size = 4 if by_row else 1
        state = [t[:size] for t in (low, high, scale, zero)]
        results += observed(x, switches[:1], switches[1:], *state, 0.25, least, most, 0, by_row, symmetric)
    return results


def call(kind: str, observe: int = 1, quantize: int = 1) -> tuple[Tensor, ...]:
    """Rows on both sides of 0, on one, in the middle of nothing, and so small that the scale is replaced."""
    x = torch.randn(4, 16) * 3
    x[1], x[2] = x[1].abs() + 0.5, -x[2].abs() * 1e-4
    if kind == "tiny":
        x = x * 1e-6
    if kind == "zero":
        x = torch.zeros(4, 16)
    first = kind == "first"
    low = torch.full((4,), -torch.inf) if first else -torch.rand(4)
    high = torch.full((4,), torch.inf) if first else torch.rand(4)
    if kind in ("tiny", "zero"):
        low, high = low * 1e-6, high * 1e-6
    state = (low, high, torch.rand(4) + 0.1, torch.randint(0, 5, (4,), dtype=torch.int32))
    return x, torch.tensor([observe, quantize]), *state


def test_ranges_scales_and_zero_points(build: Build) -> None:
    archive = build(every_kind, call("later"))
    calls = [call(kind) for kind in ("first", "later", "later", "tiny", "zero")]
    for args in [*calls, call("later", observe=0), call("later", quantize=0), call("first", observe=0, quantize=0)]:
        for got, wanted in zip(archive(*args), every_kind(*args), strict=True):
            if wanted.dtype.is_floating_point:
                assert_close([got], [wanted], 2e-7)
            else:
                assert torch.equal(got, wanted)


def test_a_model_in_quantization_aware_training(build: Build) -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 6))
            self.inputs = FusedMovingAvgObsFakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
            self.weights = default_fused_per_channel_wt_fake_quant()
            with torch.no_grad():
                self.weights(self.weight)  # gives the ranges their sizes

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return F.linear(self.inputs(x), self.weights(self.weight)), self.inputs.scale

    eager = Trained()
    context = build(copy.deepcopy(eager), (torch.randn(3, 6),)).context()
    for step in range(4):
        x = torch.randn(3, 6) * (step + 1)
        with torch.no_grad():
            assert_close(context(x), eager(x), 1e-6)
    state = context.state()
    for name in ("min_val", "max_val"):
        wanted = getattr(eager.inputs.activation_post_process, name)
        assert_close([torch.as_tensor(state[f"inputs.activation_post_process.{name}"])], [wanted], 1e-6)


class Observed(nn.Module):
    """Observers in a row, and a batch norm that averages over all calls; per channel only if they have seen a call."""

    def __init__(self, *observers: nn.Module) -> None:
        super().__init__()
        self.observers = nn.ModuleList(observers)
        self.norm = nn.BatchNorm1d(5, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        for observer in self.observers:
            x = observer(x)
        return self.norm(x)


def test_observers_and_cumulative_averages_over_several_calls(build: Build) -> None:
    by_channel = [PerChannelMinMaxObserver(ch_axis=1), MovingAveragePerChannelMinMaxObserver(ch_axis=1)]
    for observer in by_channel:
        observer(torch.randn(2, 5))
    eager = Observed(MinMaxObserver(), MovingAverageMinMaxObserver(averaging_constant=0.2), *by_channel)
    archive = build(copy.deepcopy(eager), (torch.randn(3, 5),), dynamic_shapes={"x": {0: Dim("n", 2, 9)}})
    context = archive.context()
    for rows in (3, 2, 9, 4):
        x = torch.randn(rows, 5) * rows - 1
        with torch.no_grad():
            assert_close(context(x), eager(x), 1e-5)
        state, wanted = context.state(), eager.state_dict()
        names = [name for name in wanted if name.endswith(("_val", "running_mean", "running_var", "tracked"))]
        assert len(names) == 11
        assert_close([torch.as_tensor(state[name]) for name in names], [wanted[name] for name in names], 1e-5)


@pytest.mark.parametrize(
    ("observer", "said"),
    [
        (PerChannelMinMaxObserver(), r"the size of buffer 'observers.0.min_val' changes in the call, from \(0,\) to"),
        (MovingAveragePerChannelMinMaxObserver(), r"the size of buffer 'observers.0.min_val' changes in the call"),
        (HistogramObserver(), "branches on a data-dependent value, which is known only at run time"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_observers_cannot_do_is_an_error_with_the_line(observer: nn.Module, said: str) -> None:
    model = Observed(observer)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CaptureError, match=rf"(?s){said}.*test_observers.py:\d+, in forward: x = observer\(x\)"):
        aot_export(model, (torch.randn(3, 5),))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
