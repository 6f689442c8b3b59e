"""Fake tensors of derived constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from aotpack.export.ir.descriptions import Descriptions


@dataclass(frozen=True)
class Form:
    rows: int


def filled(value: float, weight: Tensor) -> Tensor:
    return torch.full(weight.shape, value, device=weight.device)


class Counted:
    """A function that counts its calls, and is equal to no other."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, form: Form, weight: Tensor) -> Tensor:
        self.calls += 1
        return weight.new_zeros(form.rows, weight.shape[0])


def test_the_same_question_is_answered_once() -> None:
    mode, function = FakeTensorMode(), Counted()
    known = Descriptions(mode)
    first, second = (mode.from_tensor(torch.ones(3, 4)) for _ in range(2))
    results = [known.of(partial(function, Form(2)), [value]) for value in (first, second)]
    assert function.calls == 1
    assert [tuple(result.shape) for result in results] == [(2, 3)] * 2
    assert results[0] is not results[1]
    assert tuple(known.of(partial(function, Form(5)), [first]).shape) == (5, 3)
    assert tuple(known.of(partial(function, Form(2)), [mode.from_tensor(torch.ones(6))]).shape) == (2, 6)
    assert tuple(known.of(partial(function, Form(2)), [mode.from_tensor(torch.ones(4, 3).t())]).shape) == (2, 3)
    assert function.calls == 4


def test_numbers_of_other_types_are_other_questions() -> None:
    mode = FakeTensorMode()
    known, value = Descriptions(mode), mode.from_tensor(torch.ones(3))
    found = [known.of(partial(filled, fill), [value]).dtype for fill in (1, 1.0, True)]
    assert found == [torch.int64, torch.float32, torch.bool]


def test_functions_with_other_arguments_are_asked_each_time() -> None:
    mode, function = FakeTensorMode(), Counted()
    known, value = Descriptions(mode), mode.from_tensor(torch.ones(3))
    for rows in (2, 3):
        assert known.of(lambda weight, rows=rows: function(Form(rows), weight), [value]).shape == (rows, 3)
    table = torch.ones(2, device="meta")
    for _ in range(2):
        assert known.of(partial(lambda table, weight: function(Form(len(table)), weight), table), [value]).shape[0] == 2
    assert function.calls == 4


def test_functions_that_make_tensors_on_a_device_run_on_fakes() -> None:
    mode = FakeTensorMode()
    value = mode.from_tensor(torch.ones(3))
    found = Descriptions(mode).of(lambda weight: torch.zeros(2, device="cpu") + weight.new_zeros(2), [value])
    assert found.device.type == "cpu"
    assert tuple(found.shape) == (2,)


def test_tensors_made_of_nothing_are_described_once() -> None:
    mode, asked = FakeTensorMode(), Counted()

    def function(weight: Tensor) -> Tensor:
        asked(Form(1), weight)
        return torch.stack([weight.sum(), torch.zeros(())])

    known, value = Descriptions(mode), mode.from_tensor(torch.ones(3))
    found = [known.of(function, [value]) for _ in range(2)]
    assert asked.calls == 1
    assert [(each.device.type, tuple(each.shape)) for each in found] == [("cpu", (2,))] * 2
