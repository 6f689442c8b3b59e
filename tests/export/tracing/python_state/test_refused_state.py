"""What forward keeps in Python objects and cannot be state: the capture names it and the model's line."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import CaptureError
from aotpack.export import aot_export
from tests.export.pass_checks import replayed
from tests.export.tracing.python_state.test_python_state import Delayed

pytestmark = pytest.mark.torch


class Refused(nn.Module):
    def __init__(self, start: Any, step: Any) -> None:
        super().__init__()
        self.kept = start
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.step(self, x)
        return result


def lazily(self: Any, x: Tensor) -> Tensor:
    if self.kept is None:
        self.kept = x * 2
    return x + self.kept


def hidden(self: Any, x: Tensor) -> Tensor:
    self.kept = x if self.kept is None else self.kept * 0.5 + x
    return self.kept * 2


def growing(self: Any, x: Tensor) -> Tensor:
    self.kept = torch.cat([self.kept, x])
    return x + self.kept.sum()


def logging(self: Any, x: Tensor) -> Tensor:
    self.kept.append(x)
    return x * len(self.kept)


def rarely(self: Any, x: Tensor) -> Tensor:
    self.kept.append(1)
    return x * 2 if len(self.kept) > 100 else x


def toggling(self: Any, x: Tensor) -> Tensor:
    self.kept = not self.kept
    return x * 2 if self.kept else x


def only_first(self: Any, x: Tensor) -> Tensor:
    if self.kept:
        self.kept = False
        return x * 2
    return x


def counting(self: Any, x: Tensor) -> Tensor:
    self.kept += 1
    return x * 2 if self.kept > 50 else x


def in_numpy(self: Any, x: Tensor) -> Tensor:
    self.kept[0] += 1
    return x * float(self.kept[0])


def by_a_set(self: Any, x: Tensor) -> Tensor:
    self.kept.add(len(self.kept))
    return x * 2


def passing_on(self: Any, x: Tensor) -> Tensor:
    self.kept = [[x, *self.kept[0]]]
    return x + sum(self.kept[0])


def by_default(self: Any, x: Tensor, calls: list[int] = []) -> Tensor:  # noqa: B006
    calls.append(1)
    return x * len(calls)


LINES: list[tuple[Any, Any, str]] = [
    (None, lazily, "self.kept = x * 2"),
    (None, hidden, "self.kept = x if self.kept is None else self.kept * 0.5 + x"),
    (torch.zeros(1), growing, "self.kept = torch.cat([self.kept, x])"),
    ([], logging, "self.kept.append(x)"),
    ([], rarely, "self.kept.append(1)"),
    (False, toggling, "self.kept = not self.kept"),
    (True, only_first, "self.kept = False"),
    (0, counting, "return x * 2 if self.kept > 50 else x"),
    (np.zeros(2), in_numpy, "self.kept[0] += 1"),
    (set(), by_a_set, "self.kept.add(len(self.kept))"),
    ([[]], passing_on, "self.kept = [[x, *self.kept[0]]]"),
]


@pytest.mark.parametrize(("start", "step", "line"), LINES, ids=[step.__name__ for _, step, _ in LINES])
@pytest.mark.parametrize("mode", ["forward", "joint"])
def test_other_state_is_refused_with_its_line(start: Any, step: Any, line: str, mode: str) -> None:
    model = Refused(copy.deepcopy(start), step)
    x = torch.randn(3, requires_grad=mode == "joint")
    if mode == "joint":
        model.step = lambda self, x: step(self, x).sum()
    with pytest.raises(CaptureError) as info:
        aot_export(model, (x,), mode=mode)
    assert "self.kept" in str(info.value)
    assert f": {line}" in str(info.value)
    assert info.value.hint
    assert str(model.kept) == str(start)


def test_a_default_that_grows_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"a default of by_default.*\n  at .*: calls.append\(1\)"):
        aot_export(Refused(None, by_default), (torch.randn(3),))
    assert by_default.__defaults__ == ([],)


def test_a_buffer_that_begins_as_none() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", None)

        def forward(self, x: Tensor) -> Tensor:
            return lazily(self, x)

    with pytest.raises(CaptureError, match=r"self\.kept.*None before the first call(.|\n)*self\.kept = x \* 2"):
        aot_export(Model(), (torch.randn(3),))
    warm = Model()
    with torch.no_grad():
        warm(torch.randn(3))
    replayed(warm, *[(torch.randn(3),) for _ in range(2)])


def test_state_cannot_follow_a_dynamic_size() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            old, self.last = self.last, x
            return old.sum() + x

    with pytest.raises(CaptureError, match=r"self\.last is float32\[4, 3\] before this call and float32\["):
        aot_export(Model(), (torch.randn(4, 3),), dynamic_shapes={"x": {0: aotpack.Dim("b", 1, 8)}})
    with pytest.raises(CaptureError, match=r"'b'"):
        aot_export(Delayed(), (torch.randn(3),), dynamic_shapes={"x": {0: aotpack.Dim("b", 1, 8)}})


def test_a_lazy_module_that_was_never_called() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(2))
    with pytest.raises(CaptureError, match=r"lazy modules.*'1\.weight'.*no shape yet") as info:
        aot_export(model, (torch.randn(2, 3),))
    assert "call the model once" in (info.value.hint or "")
    model(torch.randn(2, 3))
    replayed(model, (torch.randn(2, 3),))
