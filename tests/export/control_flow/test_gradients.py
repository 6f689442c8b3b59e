"""Gradients of scans, maps, branches and checkpoints in archives, compared with eager's in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export
from aotpack.export.torch_compat.higher_order import functions_called
from tests.export.conftest import Build, assert_close
from tests.export.control_flow.gradients import Associative, Backwards, Checked, Dropped, Together
from tests.support.building import joint_reference

STEPS, BATCH = Dim("steps", 1, 12), Dim("batch", 1, 5)
DIMS = {"xs": {0: STEPS, 1: BATCH}, "init": {0: BATCH}}


def call(steps: int, batch: int, dtype: torch.dtype = torch.float64, sign: int = 1) -> tuple[Tensor, Tensor]:
    xs, init = torch.randn(steps, batch, 3, dtype=dtype).abs() * sign, torch.randn(batch, 4, dtype=dtype)
    return xs.requires_grad_(), init.requires_grad_()


def check(archive: Any, model: torch.nn.Module, *calls: tuple[Tensor, Tensor], tolerance: float = 1e-9) -> None:
    known = dict(model.named_parameters())
    for args in calls:
        # Eager's scan does not accept integers with gradients.
        with functions_called():
            expected = joint_reference(model, *args)
        answer = archive(*(value.detach() for value in args))
        gradients = {
            name: torch.zeros_like(known[name]) if value is None and answer["gradients"][name] is not None else value
            for name, value in expected["gradients"].items()
        }
        assert_close(answer, {**expected, "gradients": gradients}, tolerance)


def test_losses_of_dynamic_sizes(build: Build) -> None:
    torch.manual_seed(0)
    model = Together().double()
    archive = build(model, call(5, 2), mode="joint", dynamic_shapes=DIMS, any_size=False)
    sizes = ((5, 2), (1, 1), (12, 5), (1, 5), (12, 1))
    check(archive, model, *(call(*size, sign=sign) for size in sizes for sign in (1, -1)))


def test_associative_scans(build: Build) -> None:
    torch.manual_seed(0)
    model = Associative().double()
    archive = build(model, call(6, 2), mode="joint", any_size=False)
    check(archive, model, call(6, 2))


def test_half_precision(build: Build) -> None:
    torch.manual_seed(0)
    model = Backwards().bfloat16()
    archive = build(model, call(5, 2, torch.bfloat16), mode="joint", any_size=False)
    check(archive, model, call(5, 2, torch.bfloat16), tolerance=0.05)


class InTheModel(torch.nn.Module):
    """A model that computes the gradient of a scan itself."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = Backwards().double()

    def forward(self, xs: Tensor, init: Tensor) -> Any:
        xs = xs.detach().requires_grad_()
        loss = self.loss(xs, init)
        return loss, torch.autograd.grad(loss, xs)[0]


def test_gradients_in_the_model(build: Build) -> None:
    torch.manual_seed(0)
    model = InTheModel()
    archive = build(model, tuple(value.detach() for value in call(5, 2)), dynamic_shapes=DIMS, any_size=False)
    for args in (call(1, 1), call(12, 5)):
        with functions_called():
            expected = model(*args)
        assert_close(archive(*(value.detach() for value in args)), [value.detach() for value in expected], 1e-9)


@pytest.mark.parametrize("place", ["map", "cond", "scan"])
def test_random_numbers_that_a_gradient_needs_are_refused(place: str) -> None:
    with pytest.raises(CaptureError, match="draws random numbers by aten") as caught:
        aot_export(Dropped(place), call(3, 2, torch.float32), mode="joint")
    assert "draw the numbers before" in (caught.value.hint or "")


def test_dropout_in_checkpoints_has_one_mask(build: Build) -> None:
    model = Checked()
    archive = build(model, call(12, 5, torch.float32), mode="joint", any_size=False)
    xs, init = (value.detach() for value in call(12, 5, torch.float32))
    answer = archive(xs, init)
    kept = torch.as_tensor(answer["outputs"][1]) != 0
    assert 0 < kept.sum() < kept.numel()
    slope = 2 * model.i.weight.sum().detach()
    assert_close(answer["input_gradients"], {**answer["input_gradients"], "xs": kept * slope})
