"""Sizes 0 and 1: a program takes a size where eager works and what was captured does the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export
from aotpack.export.ir.program import Program
from tests.support.acceptance import accepts
from tests.support.building import Build, assert_close, in_double

Make = Callable[..., tuple[Any, ...]]
randn = torch.randn


def one(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] == 1 else x * 2


def none(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] == 0 else x * 2


def squeezed_inside(x: torch.Tensor) -> torch.Tensor:
    return x.squeeze(0).sum(0)


# A model, its arguments for a size n, and whether eager's answer has the form of the example's at n = 0 and 1.
PROGRAMS: dict[str, tuple[Any, Make, tuple[bool, bool]]] = {
    "pointwise": (lambda x: x * 2, lambda n: (randn(n, 3),), (True, True)),
    "squeeze": (lambda x: x.squeeze(), lambda n: (randn(n, 3),), (True, False)),
    "squeeze inside": (squeezed_inside, lambda n: (randn(n, 3, 2),), (True, False)),
    "mean": (lambda x: x.mean(0), lambda n: (randn(n, 3),), (True, True)),
    "std": (lambda x: x.std(0), lambda n: (randn(n, 3),), (True, True)),
    "max": (lambda x: x.max(0).values, lambda n: (randn(n, 3),), (False, True)),
    "amax of all": (lambda x: x.amax(), lambda n: (randn(n, 3),), (False, True)),
    "branch at 1": (one, lambda n: (randn(n, 3),), (True, False)),
    "branch at 0": (none, lambda n: (randn(n, 3),), (False, True)),
    "at least one": (lambda x: x / max(x.shape[0], 1), lambda n: (randn(n, 3),), (True, True)),
    "broadcast": (lambda x, y: x.unsqueeze(0) + y.unsqueeze(1), lambda n: (randn(n), randn(4)), (True, True)),
    "view": (lambda x: x.view(-1), lambda n: (randn(n, 3),), (True, True)),
    "view by size": (lambda x: x.view(x.shape[0], -1), lambda n: (randn(n, 3, 2),), (False, True)),
    "transposed": (lambda x: x.transpose(0, 1).reshape(3, -1), lambda n: (randn(n, 3, 2),), (True, True)),
    "cat": (lambda x, y: torch.cat([x, y]), lambda n: (randn(n, 3), randn(2, 3)), (True, True)),
    "matmul": (lambda x, y: x @ y, lambda n: (randn(n, 3), randn(3, 2)), (True, True)),
    "inner": (lambda x, y: x @ y, lambda n: (randn(2, n), randn(n, 2)), (True, True)),
    "softmax": (lambda x: x.softmax(0), lambda n: (randn(n, 3),), (True, True)),
    "layer norm": (lambda x: F.layer_norm(x, (3,)), lambda n: (randn(n, 3),), (True, True)),
    "embedding": (lambda i, w: F.embedding(i, w), lambda n: (torch.randint(5, (n,)), randn(5, 3)), (True, True)),
    "conv batch": (nn.Conv2d(2, 3, 3), lambda n: (randn(n, 2, 5, 5),), (True, True)),
    "conv height": (nn.Conv2d(2, 3, 3, padding=1), lambda n: (randn(2, 2, n, 5),), (False, True)),
    "pool": (lambda x: F.max_pool2d(x, 2), lambda n: (randn(2, 3, n, 4),), (False, False)),
    "lstm": (nn.LSTM(3, 4), lambda n: (randn(n, 2, 3),), (False, True)),
    "roll": (lambda x: torch.roll(x, 1, 0), lambda n: (randn(n, 2),), (True, True)),
    "written": (lambda x: x.add_(1), lambda n: (randn(n, 2),), (True, True)),
}


def shapes(arguments: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[dict[int, str], ...]:
    """The axes along which two calls differ are "n"."""
    return tuple(
        {axis: "n" for axis in range(a.dim()) if a.shape[axis] != b.shape[axis]}
        for a, b in zip(arguments, other, strict=True)
    )


def capture(name: str, **options: Any) -> Program:
    model, make, _ = PROGRAMS[name]
    return aot_export(model, make(6), dynamic_shapes=shapes(make(6), make(7)), **options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_sizes_are_taken_where_eager_works(name: str) -> None:
    model, make, wanted = PROGRAMS[name]
    program = capture(name)
    assert tuple(accepts(program, {"n": size}) for size in (0, 1)) == wanted, program.notes
    for size in [size for size in (0, 1, 2, 3, 9) if accepts(program, {"n": size})]:
        arguments = make(size)
        with torch.no_grad():
            expected = model(*copy.deepcopy(arguments))
            actual = program.runnable()(*arguments)
        flat = torch.utils._pytree.tree_leaves(expected)
        assert_close(list(actual), flat)
    reasons = [note.text for note in program.notes if note.subject == "n"]
    assert bool(reasons) == (wanted != (True, True))


@pytest.mark.parametrize("name", ["squeeze", "transposed", "mean", "conv batch"])
def test_archives_of_small_sizes(build: Build, name: str) -> None:
    model, make, wanted = PROGRAMS[name]
    archive = build(model, make(6), dynamic_shapes=shapes(make(6), make(7)))
    for size, works in [(0, wanted[0]), (1, wanted[1]), (2, True), (5, True)]:
        arguments = make(size)
        if not works:
            with pytest.raises(ValueError, match=r"\bn\b"):
                archive(*arguments)
            continue
        double = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
        with torch.no_grad():
            expected = double(*in_double(arguments))
        assert_close(torch.as_tensor(archive(*arguments)), expected.float())


def test_a_size_that_the_user_asked_for() -> None:
    with pytest.raises(CaptureError, match=r"declared as n in \[1, 9\], but n = 1 does not work: a tensor of 1 dims"):
        aot_export(lambda x: x.squeeze(), (randn(4, 3),), dynamic_shapes={"x": {0: Dim("n", 1, 9)}})
    program = aot_export(lambda x: x.squeeze(), (randn(4, 3),), dynamic_shapes={"x": {0: Dim("n", 2, 9)}})
    assert str(program.signature.dims[0]) == "n in [2, 9]" and not program.checks


def test_the_reason_is_told() -> None:
    program = capture("max")
    assert str(program.signature.dims[0]) == "n >= 1"
    assert [str(note) for note in program.notes] == [
        "n: cannot be 0: the model fails: IndexError: max(): Expected reduction dim 0 to have non-zero size."
    ]


def test_models_with_a_backward() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).squeeze().pow(2).sum()

    program = aot_export(Loss(), (randn(4, 3),), mode="joint", dynamic_shapes={"x": {0: "n"}})
    assert [accepts(program, {"n": size}) for size in (0, 1, 2)] == [True, False, True]


def test_no_size_is_tried_out_that_is_out_of_range(tmp_path: Path) -> None:
    # Lists that a model changes are put back.
    log = tmp_path / "log"

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not isinstance(x, torch._subclasses.FakeTensor):
                with log.open("a") as file:
                    file.write(f"{x.shape[0]} ")
            return x + 1

    aot_export(Counting(), (randn(4, 3),), dynamic_shapes={"x": {0: Dim("n", 2, 64)}})
    assert log.read_text().split() == ["4"]
    aot_export(Counting(), (randn(4, 3),), dynamic_shapes={"x": {0: Dim("n", 0, 64)}})
    assert log.read_text().split() == ["4", "4", "0", "1"]


def test_state_is_as_before() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x.sum(0)
            return self.total * 1

    model = Counter()
    program = aot_export(model, (randn(4, 3),), dynamic_shapes={"x": {0: "n"}})
    assert torch.equal(model.total, torch.zeros(3))
    assert all(accepts(program, {"n": size}) for size in (0, 1, 2))
