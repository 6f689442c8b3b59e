"""Python state of models whose weights are not in memory while they are captured: found in calls over fake tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import CaptureError
from aotpack.export import Program, aot_export, without_weights
from tests.support.building import Pack, assert_close

pytestmark = pytest.mark.torch


class Everything(nn.Module):
    """State that an archive can have, and what later calls do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.last = torch.zeros(2, 4)
        self.sum = torch.zeros(2, 4)
        self.pair = (torch.zeros(2, 4), 0)
        self.register_buffer("seen", torch.zeros(2, 4))
        self.calls = 0
        self.log: list[Any] = []
        self.positions: Tensor | None = None
        self.unread: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        result = y + self.last + self.pair[0] * self.pair[1]
        self.last = y
        self.pair = (x, self.pair[1] + 1)
        self.calls += 1
        self.sum.add_(y)
        self.seen += x
        self.log.append(x.shape)
        if self.positions is None:
            self.positions = torch.arange(4.0)
        self.unread = y
        return result + self.calls + self.sum + self.seen + self.positions


class Step(nn.Module):
    def __init__(self, step: Callable[[Any, Tensor], Tensor], kept: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.step = step
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, self.linear(x))


def streamed(make: Callable[[], nn.Module], folder: Path) -> tuple[nn.Module, Program]:
    """A model in memory, and the same one captured without its weights."""
    from safetensors.torch import save_model

    model = make().eval()
    save_model(model, str(folder / "weights.safetensors"))
    with without_weights():
        empty = make().eval()
    before = {key: str(value) for key, value in vars(empty).items() if key not in ("_parameters", "_modules")}
    program = aot_export(empty, (torch.randn(2, 4),), weights=folder / "weights.safetensors")
    assert {key: str(vars(empty)[key]) for key in before} == before
    return model, program


def test_it_is_state_of_the_archive(pack: Pack, tmp_path: Path) -> None:
    model, program = streamed(Everything, tmp_path)
    context = aotpack.load(pack(program), num_threads=1).context()
    for _ in range(4):
        x = torch.randn(2, 4)
        with torch.no_grad():
            assert_close(context(x), model(x), 1e-5)


def of_the_first(self: Any, x: Tensor) -> Tensor:
    if self.kept is None:
        self.kept = x
    return x + self.kept


def only_first(self: Any, x: Tensor) -> Tensor:
    if self.kept is None:
        self.kept = 1
        return x
    return x * 2


def growing(self: Any, x: Tensor) -> Tensor:
    self.kept.append(x)
    return x * len(self.kept)


@pytest.mark.parametrize(
    ("step", "kept", "line"),
    [
        (of_the_first, None, "self.kept = x"),
        (only_first, None, "self.kept = 1"),
        (growing, [], "self.kept.append(x)"),
    ],
)
def test_other_state_is_refused_with_its_line(step: Any, kept: Any, line: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as info:
        streamed(lambda: Step(step, copy.copy(kept)), tmp_path)
    assert "self.kept" in str(info.value)
    assert f": {line}" in str(info.value)
